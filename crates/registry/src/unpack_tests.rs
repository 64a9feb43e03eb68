//! Archives from a server on loopback: what is taken out of them, and what is refused.

use super::super::disk::part;
use super::super::pull_host::{Host, HostedFile};
use super::super::*;
use super::Member;
use antiphon_types::RetryPolicy;
use bzip2::Compression;
use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const REGISTRY: &str = r#"
    [[model]]
    name = "m"
    stage = "stt"
    family = "transducer"
    title = "M"
    base = "https://models.invalid/"
    licence = "MIT"
    languages = []
    rate_hz = 16000
    files = [{ role = "tokens", path = "tokens.txt", bytes = 8 }]
    [[model.variant]]
    precision = "int8"
    archive = { role = "archive", path = "m-80ms.tar.bz2", about_mb = 1 }
    files = [{ role = "graph", path = "80ms/encoder.onnx", about_mb = 1 }]
"#;

/// A server with an archive, a models folder, and a registry whose model is in that archive.
struct Bench {
    dir: tempfile::TempDir,
    host: Host,
    config: ModelsConfig,
    catalog: Catalog,
}

/// A graph, as far as its format is checked: of `n_bytes` bytes and a few more.
fn graph(n_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0x08, 8, 0x3a];
    let mut n = n_bytes;
    while n >= 0x80 {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    // Numbers that no packer makes smaller (Numerical Recipes, `ranqd1`).
    let mut number = 1_u32;
    bytes.extend((0..n_bytes).map(|_| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (number >> 24) as u8
    }));
    bytes
}

/// What the archive holds besides the model.
fn file(name: &str, bytes: &[u8]) -> (tar::Header, Vec<u8>) {
    let mut header = tar::Header::new_gnu();
    // `set_path` refuses what leads out.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    (header, bytes.to_vec())
}

fn link(name: &str, kind: tar::EntryType, to: &str) -> (tar::Header, Vec<u8>) {
    let (mut header, _) = file(name, b"");
    header.set_entry_type(kind);
    header.set_link_name(to).expect("short");
    header.set_cksum();
    (header, Vec::new())
}

fn tar(members: &[(tar::Header, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (header, bytes) in members {
        archive.append(header, bytes.as_slice()).expect("in memory");
    }
    archive.into_inner().expect("in memory")
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut packer = BzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("in memory");
    packer.finish().expect("in memory")
}

fn usual() -> Vec<(tar::Header, Vec<u8>)> {
    vec![
        file("m-80ms/README.md", b"# Model"),
        file("m-80ms/test_wavs/0.wav", &[7; 10_000]),
        file("m-80ms/encoder.onnx", &graph(600_000)),
        file("./m-80ms/tokens.txt", b"<blk> 0\n"),
    ]
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host::start();
        let mirror = host.url();
        let models = dir.path().join("models").to_str().expect("UTF-8").to_owned();
        let config = ModelsConfig { dir: models, mirror, ..ModelsConfig::default() };
        Self { dir, host, config, catalog: Catalog::read("test", REGISTRY).expect("it is right") }
    }

    fn serve(&self, bytes: Vec<u8>) {
        self.host.put("m-80ms.tar.bz2", HostedFile { bytes, tag: Some("\"1\""), ..HostedFile::default() });
    }

    async fn pull(&self) -> Result<Progress, RegistryError> {
        let ms = Duration::from_millis(1);
        let s = Duration::from_secs(10);
        let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::unbounded(ms, ms) };
        let (progress, seen) = watch::channel(Progress::default());
        let wanted = self.catalog.find("m").expect("it is there");
        let puller = Puller::new(&self.config, PullTimeouts { connect: s, stall: s, retry }).expect("settings");
        puller.pull(wanted.entry, wanted.variant(), &progress).await?;
        let last = seen.borrow().clone();
        Ok(last)
    }

    /// A pull that fails with `expect`, and leaves nothing of the model.
    async fn refuses(&self, members: &[(tar::Header, Vec<u8>)], expect: &str) {
        self.serve(bzip2(&tar(members)));
        self.fails(expect).await;
        assert_eq!(self.found(), Vec::<String>::new());
        let outside: Vec<_> = std::fs::read_dir(self.dir.path()).expect("a folder").flatten().collect();
        assert!(outside.len() <= 1, "only models: {outside:?}");
    }

    async fn fails(&self, expect: &str) {
        let said = self.pull().await.expect_err("refused").to_string();
        assert!(said.contains(expect), "{expect:?} is not in {said:?}");
        let located = locate(&self.config, self.catalog.find("m").expect("it is there"));
        assert!(matches!(located, Err(RegistryError::Absent { .. })), "an incomplete model counts as absent");
    }

    fn path(&self, path: &str) -> PathBuf {
        self.config.folder("m").join(path)
    }

    /// All files of the model's folder, with their size.
    fn found(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in [self.path(""), self.path("80ms")] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().expect("a type").is_file() {
                    names.push(entry.file_name().into_string().expect("UTF-8"));
                }
            }
        }
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_model_is_taken_out_of_its_archive_and_nothing_else() {
    let bench = Bench::new().await;
    let gzip = {
        let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&tar(&usual())).expect("in memory");
        packer.finish().expect("in memory")
    };
    // Parallel packers write several streams.
    let whole = tar(&usual());
    let streams = [bzip2(&whole[..9_000]), bzip2(&whole[9_000..])].concat();
    for archive in [bzip2(&whole), streams] {
        bench.serve(archive);
        let last = bench.pull().await.expect("it is whole");
        let n_bytes = graph(600_000).len() as u64 + 8;
        assert_eq!((last.phase, last.n_done, last.bytes, last.total_bytes), (Phase::Done, 2, n_bytes, n_bytes));
        assert_eq!(bench.found(), ["encoder.onnx", "pulled.json", "tokens.txt"]);
        assert_eq!(std::fs::read(bench.path("80ms/encoder.onnx")).expect("it is there"), graph(600_000));
        assert_eq!(std::fs::read(bench.path("tokens.txt")).expect("it is there"), b"<blk> 0\n");
        let wanted = bench.catalog.find("m").expect("it is there");
        let found = locate(&bench.config, wanted).expect("it is whole");
        assert!(found.main_file().expect("a graph").ends_with("m/80ms/encoder.onnx"));
        bench.host.asked();
        bench.pull().await.expect("it is whole");
        assert_eq!(bench.host.asked(), [], "all files exist");
        // A damaged file is taken out once more.
        std::fs::write(bench.path("tokens.txt"), "<blk> 1\n").expect("written");
        bench.pull().await.expect("it is whole");
        assert_eq!(std::fs::read(bench.path("tokens.txt")).expect("it is there"), b"<blk> 0\n");
        remove(&bench.config, wanted).expect("it is there");
    }
    // The name says bzip2.
    bench.serve(gzip);
    bench.fails("is not a bzip2 archive").await;
}

#[tokio::test]
async fn a_path_that_leads_out_and_a_link_are_refused() {
    let bench = Bench::new().await;
    for name in ["../outside", "m-80ms/../../outside", "/outside", "m-80ms/../encoder.onnx"] {
        let members = [vec![file(name, b"x")], usual()].concat();
        bench.refuses(&members, "the archive holds a path that leads out of it; what was fetched").await;
    }
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Fifo, tar::EntryType::Directory] {
        let mut members = usual();
        members[2] = link("m-80ms/encoder.onnx", kind, "/etc/hosts");
        bench.refuses(&members, "holds m-80ms/encoder.onnx, which is no plain file").await;
    }
    // A link that is none of the model's files is read past, and so is what would be written through it.
    let members = [
        vec![
            link("m-80ms/80ms", tar::EntryType::Symlink, "/tmp"),
            link("80ms", tar::EntryType::Symlink, ".."),
            file("80ms/encoder.onnx", b"x"),
        ],
        usual(),
    ];
    bench.serve(bzip2(&tar(&members.concat())));
    bench.pull().await.expect("it is whole");
    assert_eq!(bench.found(), ["encoder.onnx", "pulled.json", "tokens.txt"]);
    assert!(!bench.path("80ms").is_symlink());
}

#[tokio::test]
async fn what_is_missing_twice_or_too_large_is_refused() {
    let bench = Bench::new().await;
    bench.refuses(&usual()[..3], "the archive does not hold m-80ms/tokens.txt").await;
    let twice = [usual(), vec![file("m-80ms/tokens.txt", b"<blk> 0\n")]].concat();
    bench.refuses(&twice, "the archive holds m-80ms/tokens.txt twice").await;
    let mut large = usual();
    large[3] = file("m-80ms/tokens.txt", b"<blk> 00\n");
    bench.refuses(&large, "holds m-80ms/tokens.txt with more than 8 bytes").await;
    // A megabyte of zeros takes 50 bytes.
    let bomb = [vec![file("m-80ms/zeros", &vec![0; 24_000_000])], usual()].concat();
    bench.refuses(&bomb, "it unpacks to too many bytes").await;
    let many: Vec<_> = (0..10_001).map(|i| file(&format!("m-80ms/{i}"), b"")).collect();
    bench.refuses(&many, "has more than 10000 members").await;
    // The name that extends the next header's would be read into memory.
    let mut long = tar::Header::new_gnu();
    long.set_entry_type(tar::EntryType::GNULongName);
    long.set_size(24_000_000);
    long.set_cksum();
    let long = (long, vec![b'a'; 24_000_000]);
    bench.refuses(&[vec![long], usual()].concat(), "it unpacks to too many bytes").await;
}

#[tokio::test]
async fn a_damaged_archive_and_what_is_no_model_are_refused() {
    let bench = Bench::new().await;
    let mut flipped = bzip2(&tar(&usual()));
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    bench.serve(flipped);
    bench.fails("the archive is damaged or not the model's: ").await;
    assert_eq!(bench.found(), Vec::<String>::new());
    let whole = bzip2(&tar(&usual()));
    bench.serve(whole[..whole.len() - 1_000].to_vec());
    bench.fails("the archive is damaged or not the model's: ").await;
    bench.serve(b"<html>Sign in</html>".to_vec());
    bench.fails("is not a bzip2 archive").await;
    // The members are checked as files with addresses of their own are.
    let mut page = usual();
    page[2] = file("m-80ms/encoder.onnx", b"<html>Sign in</html>");
    bench.refuses(&page, "is not an ONNX model").await;
    bench.serve(whole);
    bench.pull().await.expect("it is whole");
}

#[tokio::test]
async fn half_an_archive_is_gone_on_with_and_half_an_unpacking_begins_again() {
    let bench = Bench::new().await;
    let whole = bzip2(&tar(&usual()));
    let half = whole.len() / 2;
    let host = |breaks| HostedFile { bytes: whole.clone(), tag: Some("\"1\""), breaks, ..HostedFile::default() };
    bench.host.put("m-80ms.tar.bz2", host(Some((half, 1))));
    bench.fails("broke off after ").await;
    let had = std::fs::metadata(part(&bench.path("m-80ms.tar.bz2"))).expect("it is kept").len();
    let wanted = bench.catalog.find("m").expect("it is there");
    assert_eq!(on_disk(&bench.config, wanted.entry, wanted.variant()), OnDisk::Partly { bytes: had });
    bench.host.asked();
    // What a process that was killed while it unpacked leaves.
    std::fs::create_dir_all(bench.path("80ms")).expect("made");
    std::fs::write(part(&bench.path("80ms/encoder.onnx")), graph(6_000_000)).expect("written");
    bench.pull().await.expect("it is whole");
    assert_eq!(bench.host.asked(), [("base/m-80ms.tar.bz2".to_owned(), Some(had as usize))]);
    assert_eq!(bench.found(), ["encoder.onnx", "pulled.json", "tokens.txt"]);
    assert_eq!(std::fs::read(bench.path("80ms/encoder.onnx")).expect("it is there"), graph(600_000));
    // A pull that was killed before it removed the archive.
    std::fs::write(part(&bench.path("m-80ms.tar.bz2")), whole).expect("written");
    bench.pull().await.expect("it is whole");
    assert_eq!(bench.found(), ["encoder.onnx", "pulled.json", "tokens.txt"]);
}

#[tokio::test]
async fn what_an_earlier_unpacking_left_counts_as_room() {
    const GB: u64 = 1_000_000_000;
    let bench = Bench::new().await;
    bench.serve(bzip2(&tar(&usual())));
    std::fs::create_dir_all(bench.path("80ms")).expect("made");
    // A hole, which takes no room.
    let left = std::fs::File::create(part(&bench.path("80ms/encoder.onnx"))).expect("made");
    left.set_len(200 * GB).expect("a hole");
    let disk = rustix::fs::statvfs(bench.dir.path()).expect("a disk");
    let wanted = bench.catalog.find("m").expect("it is there");
    let mut variant = wanted.variant().clone();
    let graph = variant.files.iter_mut().find(|file| file.role == "graph").expect("it is there");
    graph.about_bytes = disk.f_bavail * disk.f_frsize + 100 * GB;
    let (progress, _) = watch::channel(Progress::default());
    let puller = Puller::new(&bench.config, PullTimeouts::default()).expect("settings");
    let error = puller.pull(wanted.entry, &variant, &progress).await.expect_err("the graph is too small");
    assert!(matches!(error, RegistryError::WrongSize { .. }), "it was unpacked: {error}");
}

#[tokio::test]
async fn a_pull_that_is_dropped_ends_its_unpacking() {
    let bench = Bench::new().await;
    let members = [Member { name: "a".into(), to: bench.dir.path().join("a"), most_bytes: 10 }];
    let path = bench.dir.path().join("archive");
    std::fs::write(&path, bzip2(&tar(&[file("a", b"x")]))).expect("written");
    let dropped = CancellationToken::new();
    super::unpack(&path, &members, "address", &dropped).expect("it is whole");
    dropped.cancel();
    let error = super::unpack(&path, &members, "address", &dropped).expect_err("dropped");
    assert!(matches!(error, RegistryError::Disk { .. }), "the archive is kept: {error}");
}

#[test]
fn an_archive_in_an_own_registry_is_checked() {
    let refused = |from: &str, to: &str| {
        assert!(REGISTRY.contains(from));
        Catalog::read("own.toml", &REGISTRY.replace(from, to)).expect_err("refused").to_string()
    };
    for name in ["m.zip", "../m.tar.bz2", "a/m.tar.bz2", "m.tar.bz2.part"] {
        let said = refused("path = \"m-80ms.tar.bz2\"", &format!("path = {name:?}"));
        assert!(
            said.contains("write one name that ends in .tar.bz2") || said.contains("a path is made of names"),
            "{said}"
        );
    }
    let said = refused("base = \"https://models.invalid/\"", "base = \"\"");
    assert!(said.contains("write one name that ends in"), "{said}");
    let said = refused("path = \"80ms/encoder.onnx\"", "path = \"80ms/*.onnx\", each = [\"a\", \"b\"]");
    assert!(said.contains("`each` does not go with an archive"), "{said}");
}
