//! Downloads from a real server on loopback: resuming, rejection, completeness.

use super::disk::{RECEIPT, part};
use super::pull_host::{Host, HostedFile};
use super::*;
use antiphon_test_server::unused_address;
use antiphon_types::RetryPolicy;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// A models folder, a server, and a registry with one model: a graph with a checksum, and a config without one in a
/// subfolder.
struct Bench {
    _dir: tempfile::TempDir,
    host: Host,
    config: ModelsConfig,
    catalog: Catalog,
    timeouts: PullTimeouts,
}

/// 5000 bytes that vary with the position.
fn graph() -> Vec<u8> {
    (0..5_000_u32).map(|i| (i * i % 251) as u8).collect()
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::start();
        host.put("graph.onnx", HostedFile { bytes: graph(), ..HostedFile::default() });
        host.put("x/config.json", HostedFile { bytes: b"{\"a\":1}".to_vec(), ..HostedFile::default() });
        let mirror = host.url();
        let hasher = {
            let path = dir.path().join("computed");
            std::fs::write(&path, graph()).unwrap();
            let hasher = checksum::Hasher::of_file(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            hasher
        };
        let catalog = format!(
            r#"
            [[model]]
            name = "m"
            stage = "tts"
            family = "piper"
            title = "M"
            base = "https://models.invalid/"
            licence = "MIT"
            languages = []
            rate_hz = 16000
            [[model.variant]]
            precision = "fp32"
            files = [
                {{ role = "graph", path = "graph.onnx", bytes = 5000, sha256 = "{}" }},
                {{ role = "config", path = "x/config.json", about_mb = 1 }},
            ]
            "#,
            hasher.sha256()
        );
        let catalog = Catalog::read("test", &catalog).unwrap();
        let models = dir.path().join("models").to_str().unwrap().to_owned();
        let config = ModelsConfig { dir: models, mirror, ..ModelsConfig::default() };
        let ms = Duration::from_millis(1);
        let s = Duration::from_secs(10);
        let retry = RetryPolicy { max_retries: 2, ..RetryPolicy::unbounded(ms, ms) };
        let timeouts = PullTimeouts { connect: s, stall: s, retry };
        Self { _dir: dir, host, config, catalog, timeouts }
    }

    async fn pull(&self) -> Result<Progress, RegistryError> {
        let (progress, seen) = watch::channel(Progress::default());
        let wanted = self.catalog.find("m").unwrap();
        let puller = Puller::new(&self.config, self.timeouts).unwrap();
        puller.pull(wanted.entry, wanted.variant(), &progress).await?;
        let last = seen.borrow().clone();
        Ok(last)
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.config.folder("m").join(path)
    }

    fn locate(&self) -> Result<LocatedModel, RegistryError> {
        locate(&self.config, self.catalog.find("m").unwrap())
    }

    /// A pull that fails with `expect`; the model stays absent.
    async fn fails(&self, expect: &str) {
        let said = self.pull().await.expect_err("refused").to_string();
        assert!(said.contains(expect), "{expect:?} is not in {said:?}");
        assert!(matches!(self.locate(), Err(RegistryError::Absent { .. })), "an incomplete model counts as absent");
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn a_pull_brings_all_files_and_a_second_one_only_looks() {
    let bench = Bench::new().await;
    let last = bench.pull().await.unwrap();
    assert_eq!((last.phase, last.n_done, last.bytes, last.total_bytes), (Phase::Done, 2, 5_007, 5_007));
    let found = bench.locate().unwrap();
    assert_eq!(read(found.file("graph").unwrap()), graph());
    assert_eq!(read(found.file("config").unwrap()), b"{\"a\":1}");
    assert_eq!(bench.host.asked().len(), 2);
    let names: Vec<_> = std::fs::read_dir(bench.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "graph, folder and receipt, no other files: {names:?}");
    bench.pull().await.unwrap();
    assert_eq!(bench.host.asked(), [], "all files exist");
}

#[tokio::test]
async fn a_pull_that_brings_nothing_leaves_nothing() {
    let mut bench = Bench::new().await;
    bench.config.mirror = format!("http://{}/", unused_address());
    bench.fails("cannot be reached").await;
    assert!(!Path::new(&bench.config.dir).exists(), "the folder did not exist before");
    std::fs::create_dir(&bench.config.dir).unwrap();
    bench.fails("cannot be reached").await;
    let left: Vec<_> = std::fs::read_dir(&bench.config.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    // What came is kept, and the lock is not.
    let bench = Bench::new().await;
    bench.host.put("x/config.json", HostedFile { status: Some((404, 9)), ..HostedFile::default() });
    bench.fails("404").await;
    assert!(part(&bench.path("graph.onnx")).is_file());
    assert!(!bench.path("x").exists());
    assert!(!Path::new(&bench.config.dir).join(".m.lock").exists());
    bench.host.put("x/config.json", HostedFile { bytes: b"{}".to_vec(), ..HostedFile::default() });
    bench.pull().await.unwrap();
}

#[test]
fn one_of_two_has_the_lock_though_its_file_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = ModelsConfig { dir: dir.path().to_str().unwrap().to_owned(), ..ModelsConfig::default() };
    let first = pull::Lock::take(&config, "m").unwrap();
    assert!(matches!(pull::Lock::take(&config, "m"), Err(RegistryError::Busy(_))));
    drop(first);
    let second = pull::Lock::take(&config, "m").unwrap();
    assert!(matches!(pull::Lock::take(&config, "m"), Err(RegistryError::Busy(_))));
    drop(second);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn removing_what_is_absent_says_so() {
    let bench = Bench::new().await;
    let remove = || remove(&bench.config, bench.catalog.find("m").unwrap());
    assert!(matches!(remove(), Err(RegistryError::Absent { .. })));
    std::fs::create_dir_all(bench.path("x")).unwrap();
    assert!(matches!(remove(), Err(RegistryError::Absent { .. })), "an empty folder is no model");
    bench.pull().await.unwrap();
    assert!(remove().unwrap() > 5_000);
}

/// The real entry, with small files in place of the real ones.
#[tokio::test]
async fn a_pull_of_chatterbox_turbo_brings_four_graphs_their_weights_and_the_tokenizer() {
    let mut bench = Bench::new().await;
    bench.catalog = Catalog::load(&ModelsConfig::default()).unwrap();
    let wanted = bench.catalog.find("chatterbox-turbo:q4").unwrap();
    let mut variant = wanted.variant().clone();
    for file in &mut variant.files {
        let path = file.address.strip_prefix("https://huggingface.co/").expect("the repository's host");
        bench.host.put(path, HostedFile { bytes: file.path.clone().into_bytes(), ..HostedFile::default() });
        let written = bench.config.folder("computed");
        std::fs::create_dir_all(written.parent().unwrap()).unwrap();
        std::fs::write(&written, &file.path).unwrap();
        let sum = checksum::Hasher::of_file(&written).unwrap().sha256();
        std::fs::remove_file(&written).unwrap();
        file.bytes = Some(file.path.len() as u64);
        file.sum = checksum::Sum::read(Some(&sum), None).unwrap();
    }
    let (progress, _seen) = watch::channel(Progress::default());
    Puller::new(&bench.config, bench.timeouts).unwrap().pull(wanted.entry, &variant, &progress).await.unwrap();
    let entry = Entry { variants: vec![variant], ..wanted.entry.clone() };
    let found = locate(&bench.config, ModelRequest { entry: &entry, precision: Some("q4") }).unwrap();
    assert!(found.main_file().unwrap().ends_with("chatterbox-turbo/onnx/language_model_q4.onnx"));
    for stem in ["language_model", "embed_tokens", "speech_encoder", "conditional_decoder"] {
        for end in ["onnx", "onnx_data"] {
            let path = format!("onnx/{stem}_q4.{end}");
            assert_eq!(read(&found.folder.join(&path)), path.as_bytes());
        }
    }
    assert_eq!(read(found.file("tokenizer").unwrap()), b"tokenizer.json");
    assert_eq!(bench.host.asked().len(), 9);
}

#[tokio::test]
async fn a_broken_transfer_goes_on_from_where_it_was() {
    let bench = Bench::new().await;
    let breaks = Some((2_000, 2));
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), breaks, ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("graph.onnx")), graph());
    let from: Vec<_> = bench.host.asked().into_iter().filter(|(path, _)| path.ends_with("onnx")).collect();
    assert_eq!(from.len(), 3);
    // How much of the last block arrives before the break depends on the system.
    assert!(from[0].1.is_none() && from[1].1.unwrap() >= 1_000 && from[2].1.unwrap() > from[1].1.unwrap(), "{from:?}");
}

#[tokio::test]
async fn a_server_that_breaks_off_for_ever_is_given_up_and_what_came_is_kept() {
    let bench = Bench::new().await;
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), breaks: Some((0, usize::MAX)), ..HostedFile::default() });
    std::fs::create_dir_all(bench.path("")).unwrap();
    std::fs::write(bench.path("graph.onnx.part"), &graph()[..1_500]).unwrap();
    bench.fails("broke off after 1500 bytes").await;
    assert_eq!(bench.host.asked().len(), 3, "as many attempts as the policy allows");
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(bench.host.asked()[0].1, Some(1_500), "the next pull resumes");
    assert_eq!(read(&bench.path("graph.onnx")), graph());
}

#[tokio::test]
async fn a_dropped_pull_leaves_a_part_that_the_next_one_takes_up() {
    let bench = Bench::new().await;
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), stalls: true, ..HostedFile::default() });
    let (progress, mut seen) = watch::channel(Progress::default());
    let wanted = bench.catalog.find("m").unwrap();
    let puller = Puller::new(&bench.config, bench.timeouts).unwrap();
    tokio::select! {
        _ = puller.pull(wanted.entry, wanted.variant(), &progress) => panic!("it stalls"),
        _ = seen.wait_for(|progress| progress.bytes > 0) => {}
    }
    assert!(matches!(bench.locate(), Err(RegistryError::Absent { .. })));
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("graph.onnx")), graph());
}

#[tokio::test]
async fn a_stalled_server_is_not_waited_for() {
    let mut bench = Bench::new().await;
    bench.timeouts.stall = Duration::from_millis(30);
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), stalls: true, ..HostedFile::default() });
    // Each attempt makes progress, so it does not count as a failure; the last ones complete the file.
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("graph.onnx")), graph());
    assert!(bench.host.asked().len() > 3);
}

#[tokio::test]
async fn wrong_sizes_and_checksums_are_found_and_thrown_away() {
    let bench = Bench::new().await;
    let mut wrong = graph();
    wrong[4_999] ^= 1;
    bench.host.put("graph.onnx", HostedFile { bytes: wrong, ..HostedFile::default() });
    bench.fails("wrong checksum: expected SHA-256").await;
    assert!(!bench.path("graph.onnx.part").exists());
    bench.host.put("graph.onnx", HostedFile { bytes: graph()[1..].to_vec(), ..HostedFile::default() });
    bench.fails("it has 4999 bytes and should have 5000").await;
    // A server that does not announce the length and sends too much.
    let long = [graph(), graph()].concat();
    bench.host.put("graph.onnx", HostedFile { bytes: long, unannounced: true, ..HostedFile::default() });
    bench.fails("and should have 5000").await;
    // A server that sends too little and does not announce it: attempts are exhausted.
    bench
        .host
        .put("graph.onnx", HostedFile { bytes: graph()[..4_000].to_vec(), unannounced: true, ..HostedFile::default() });
    bench.fails("graph.onnx: ").await;
}

#[tokio::test]
async fn refusals_are_told_with_what_would_help() {
    let bench = Bench::new().await;
    for (status, expect) in [(404, "not there (any more)"), (403, "wants an account"), (401, "wants an account")] {
        bench.host.put("graph.onnx", HostedFile { status: Some((status, 9)), ..HostedFile::default() });
        bench.fails(expect).await;
        assert_eq!(bench.host.asked().len(), 1, "asking again would not help");
    }
    bench.host.put("graph.onnx", HostedFile { status: Some((503, 9)), ..HostedFile::default() });
    bench.fails("the server answered 503: it has trouble of its own").await;
    assert_eq!(bench.host.asked().len(), 3);
    bench.host.put("graph.onnx", HostedFile { status: Some((503, 2)), bytes: graph(), ..HostedFile::default() });
    bench.pull().await.unwrap();
}

#[tokio::test]
async fn a_server_that_sends_in_circles_is_told_as_that_and_asked_once() {
    let bench = Bench::new().await;
    bench.host.put("graph.onnx", HostedFile { status: Some((302, 99)), ..HostedFile::default() });
    bench.fails("sends on to a place that is not safe, or without end").await;
    assert_eq!(bench.host.asked().len(), 11, "ten redirects are followed, and no further attempt is made");
}

#[tokio::test]
async fn a_file_that_came_whole_before_another_failed_is_not_fetched_again() {
    let bench = Bench::new().await;
    // The config has neither size nor checksum, and is downloaded first here.
    let wanted = bench.catalog.find("m").unwrap();
    let mut variant = wanted.variant().clone();
    variant.files.reverse();
    let pull = async || {
        let (progress, _seen) = watch::channel(Progress::default());
        Puller::new(&bench.config, bench.timeouts).unwrap().pull(wanted.entry, &variant, &progress).await
    };
    bench.host.put("x/config.json", HostedFile { bytes: b"{}".to_vec(), tag: Some("\"1\""), ..HostedFile::default() });
    bench.host.put("graph.onnx", HostedFile { status: Some((404, 9)), ..HostedFile::default() });
    pull().await.expect_err("half of it is missing");
    bench.host.asked();
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), ..HostedFile::default() });
    pull().await.unwrap();
    assert_eq!(bench.host.asked()[0], ("base/x/config.json".into(), Some(2)), "only whether there is more");
    assert_eq!(read(&bench.path("x/config.json")), b"{}");
    let left: Vec<_> = std::fs::read_dir(bench.path("x")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["config.json"]);
}

#[tokio::test]
async fn without_a_way_to_the_server_it_says_what_to_do() {
    let mut bench = Bench::new().await;
    bench.config.mirror = format!("http://{}", unused_address());
    bench.fails("127.0.0.1 cannot be reached: is this machine online?").await;
    bench.config.mirror = "http://".into();
    let refused = Puller::new(&bench.config, bench.timeouts).err().unwrap().to_string();
    assert!(refused.contains("models.mirror"), "{refused}");
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_not_mixed_with_the_old_one() {
    let mut bench = Bench::new().await;
    bench.timeouts.retry.max_retries = 0;
    // The config has no checksum, so only its ETag identifies the version.
    let json = |letter: &str, n: usize| format!("[\"{}\"]", letter.repeat(n)).into_bytes();
    let old = json("o", 3_000);
    let new = json("n", 4_000);
    let breaks = Some((2_000, 1));
    bench.host.put("x/config.json", HostedFile { bytes: old, tag: Some("\"1\""), breaks, ..HostedFile::default() });
    bench.fails("broke off after").await;
    bench.host.put("x/config.json", HostedFile { bytes: new.clone(), tag: Some("\"2\""), ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("x/config.json")), new);
    // Without ETag and checksum the download is restarted.
    std::fs::remove_file(bench.path("x/config.json")).unwrap();
    std::fs::write(bench.path("x/config.json.part"), "zzz").unwrap();
    bench.host.put("x/config.json", HostedFile { bytes: new.clone(), ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("x/config.json")), new);
}

#[tokio::test]
async fn a_page_in_the_place_of_the_rest_leaves_what_came() {
    let bench = Bench::new().await;
    let half = part(&bench.path("graph.onnx"));
    std::fs::create_dir_all(bench.path("")).unwrap();
    std::fs::write(&half, &graph()[..1_500]).unwrap();
    std::fs::write(download::tag_of(&half), "\"1\"").unwrap();
    for page in [b"<html>Sign in</html>".to_vec(), vec![b' '; 9_000]] {
        let found = format!("it has {} bytes and should have 5000", page.len());
        // It has no ETag, so that it is the answer to any request.
        bench.host.put("graph.onnx", HostedFile { bytes: page, ..HostedFile::default() });
        bench.fails(&found).await;
        assert_eq!(bench.host.asked(), [("base/graph.onnx".to_owned(), Some(1_500))]);
        assert_eq!(read(&half), graph()[..1_500]);
    }
    let page = b"<html>Sign in</html>".to_vec();
    bench.host.put("graph.onnx", HostedFile { bytes: page, unannounced: true, ..HostedFile::default() });
    bench.fails("something else than the rest of the file").await;
    assert_eq!(bench.host.asked(), [("base/graph.onnx".to_owned(), Some(1_500))]);
    assert_eq!(read(&half), graph()[..1_500]);
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), tag: Some("\"1\""), ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(bench.host.asked()[0].1, Some(1_500), "the next pull resumes");
    assert_eq!(read(&bench.path("graph.onnx")), graph());
    // A range of another file says that what came is none of it.
    std::fs::remove_file(bench.path("graph.onnx")).unwrap();
    std::fs::write(&half, &graph()[..1_500]).unwrap();
    bench.host.put("graph.onnx", HostedFile { bytes: graph()[1..].to_vec(), ..HostedFile::default() });
    bench.fails("it has 4999 bytes and should have 5000").await;
    assert!(!half.exists());
}

#[tokio::test]
async fn a_server_without_ranges_and_lengths_sends_the_file_from_its_start() {
    let bench = Bench::new().await;
    let half = part(&bench.path("graph.onnx"));
    std::fs::create_dir_all(bench.path("")).unwrap();
    std::fs::write(&half, &graph()[..1_500]).unwrap();
    std::fs::write(download::tag_of(&half), "\"1\"").unwrap();
    // It has no ETag, so that it is the answer to any request.
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), unannounced: true, ..HostedFile::default() });
    bench.pull().await.unwrap();
    assert_eq!(bench.host.asked()[0].1, Some(1_500));
    assert_eq!(read(&bench.path("graph.onnx")), graph());
}

#[tokio::test]
async fn a_model_with_one_file_missing_does_not_count() {
    let bench = Bench::new().await;
    bench.host.put("x/config.json", HostedFile { status: Some((404, 9)), ..HostedFile::default() });
    bench.fails("not there (any more)").await;
    assert!(bench.path("graph.onnx.part").exists(), "it waits for the rest");
    assert!(!bench.path("graph.onnx").exists() && !bench.path(RECEIPT).exists());
    bench.host.put("x/config.json", HostedFile { bytes: b"{}".to_vec(), ..HostedFile::default() });
    bench.host.asked();
    bench.pull().await.unwrap();
    assert_eq!(bench.host.asked(), [("base/x/config.json".to_owned(), None)], "the graph was downloaded before");
}

#[tokio::test]
async fn a_damaged_file_is_fetched_again() {
    let bench = Bench::new().await;
    bench.pull().await.unwrap();
    let mut wrong = graph();
    wrong[7] ^= 1;
    std::fs::write(bench.path("graph.onnx"), wrong).unwrap();
    std::fs::write(bench.path("x/config.json"), "{\"a\":2}").unwrap();
    bench.pull().await.unwrap();
    assert_eq!(read(&bench.path("graph.onnx")), graph());
    assert_eq!(read(&bench.path("x/config.json")), b"{\"a\":1}", "the receipt records what was downloaded");
}

#[tokio::test]
async fn what_the_disk_has_no_room_for_is_refused_before_its_first_byte() {
    let bench = Bench::new().await;
    bench
        .host
        .put("x/config.json", HostedFile { bytes: vec![1; 9], announces: Some(1 << 60), ..HostedFile::default() });
    bench.fails("1152921504607 MB are to come and the disk has ").await;
    assert!(!part(&bench.path("x/config.json")).exists());
    // Enough space on most disks, but more than a file of one megabyte may have.
    let announces = Some(64 << 20);
    bench.host.put("x/config.json", HostedFile { bytes: vec![1; 9], announces, ..HostedFile::default() });
    bench.fails("67108864").await;
    assert!(!part(&bench.path("x/config.json")).exists());
}

#[tokio::test]
async fn a_full_disk_is_told_and_is_no_crash() {
    let bench = Bench::new().await;
    std::fs::create_dir_all(bench.path("")).unwrap();
    // A device that accepts no data: each write fails with "no space left".
    std::os::unix::fs::symlink("/dev/full", bench.path("graph.onnx.part")).unwrap();
    bench.fails("the disk is full; make room").await;
}

#[tokio::test]
async fn two_pulls_of_one_model_do_not_meet() {
    let bench = Bench::new().await;
    bench.host.put("graph.onnx", HostedFile { bytes: graph(), stalls: true, ..HostedFile::default() });
    let (progress, mut seen) = watch::channel(Progress::default());
    let wanted = bench.catalog.find("m").unwrap();
    let puller = Puller::new(&bench.config, bench.timeouts).unwrap();
    tokio::select! {
        _ = puller.pull(wanted.entry, wanted.variant(), &progress) => panic!("it stalls"),
        () = async {
            seen.wait_for(|progress| progress.bytes > 0).await.unwrap();
            bench.fails("m is being pulled or removed already").await;
            assert!(matches!(remove(&bench.config, wanted), Err(RegistryError::Busy(_))));
        } => {}
    }
    assert!(remove(&bench.config, wanted).is_ok());
}

#[tokio::test]
async fn a_server_that_trickles_a_file_is_given_up() {
    let mut bench = Bench::new().await;
    bench.timeouts.stall = Duration::from_millis(100);
    bench
        .host
        .put("graph.onnx", HostedFile { bytes: graph(), trickles: true, tag: Some("\"a\""), ..HostedFile::default() });
    // The complete file would take 100 s.
    let pulled = tokio::time::timeout(Duration::from_secs(30), bench.fails("broke off"));
    pulled.await.expect("its bytes renew no deadline");
    assert_eq!(bench.host.asked().len(), 3, "and are no progress");
}

#[tokio::test]
async fn a_sign_in_page_is_no_model() {
    for page in ["<html>Sign in</html>", "Please log in first."] {
        let bench = Bench::new().await;
        bench.host.put("x/config.json", HostedFile { bytes: page.into(), ..HostedFile::default() });
        bench.fails("not JSON").await;
        assert!(!part(&bench.path("x/config.json")).exists(), "nothing of it is kept");
        // Nor is one that was taken for a model before.
        bench.host.put("x/config.json", HostedFile { bytes: b"{\"a\":1}".to_vec(), ..HostedFile::default() });
        bench.pull().await.unwrap();
        std::fs::write(bench.path("x/config.json"), page).unwrap();
        std::fs::remove_file(bench.path(RECEIPT)).unwrap();
        bench.pull().await.unwrap();
        assert_eq!(read(&bench.path("x/config.json")), b"{\"a\":1}");
    }
}

#[tokio::test]
async fn a_file_without_checksum_has_at_least_half_of_its_size() {
    let mut bench = Bench::new().await;
    let text = r#"
        [[model]]
        name = "m"
        stage = "stt"
        family = "whisper"
        title = "M"
        base = "https://models.invalid/"
        licence = "MIT"
        languages = []
        rate_hz = 16000
        [[model.variant]]
        precision = "q8_0"
        files = [{ role = "model", path = "ggml-m.bin", about_mb = 2 }]
    "#;
    bench.catalog = Catalog::read("test", text).unwrap();
    let model = |n: usize| [&b"lmgg"[..], &vec![7; n]].concat();
    let half = part(&bench.path("ggml-m.bin"));
    std::fs::create_dir_all(bench.path("")).unwrap();
    std::fs::write(&half, model(1_000)).unwrap();
    std::fs::write(download::tag_of(&half), "\"1\"").unwrap();
    bench.host.put("ggml-m.bin", HostedFile { bytes: model(900_000), ..HostedFile::default() });
    bench.fails("it has 900004 bytes and should have 2000000").await;
    assert_eq!(read(&half), model(1_000), "it is another file: what came of this one is kept");
    bench.host.put("ggml-m.bin", HostedFile { bytes: vec![b'x'; 2_000_000], ..HostedFile::default() });
    bench.fails("is not a ggml model").await;
    bench.host.put("ggml-m.bin", HostedFile { bytes: model(1_100_000), ..HostedFile::default() });
    bench.pull().await.unwrap();
    for size in ["0", "9223372036854775807", "1000001"] {
        let error = Catalog::read("test", &text.replace("about_mb = 2", &format!("about_mb = {size}"))).unwrap_err();
        assert!(error.to_string().contains("its size is 0, or more than 1 TB"), "{error}");
    }
}
