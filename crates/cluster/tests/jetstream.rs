//! What hubs share, on real NATS servers: revisions, bounds, seals, the queue, and what keeps a hub from starting.

use antiphon_cluster::jetstream::{Bucket, RecordError};
use antiphon_cluster::permissions::{Environment, Permissions, configuration};
use antiphon_cluster::seal::SealError;
use antiphon_cluster::testing::{NatsCluster, NatsServer};
use antiphon_cluster::{ClusterConfig, ClusterError, JetStream, SealingKey};
use futures_util::StreamExt;
use nkeys::KeyPair;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(20);
const AUDIO_BYTES: u64 = 64 << 20;
/// The record by which hubs check their key.
const KEY_CHECK: &str = "sealing-key-check";

/// A hub's settings, with a key of its own.
struct Hubs {
    config: ClusterConfig,
    _folder: TempDir,
}

fn hubs(servers: Vec<String>) -> Hubs {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, SealingKey::generate().encoded()).expect("written");
    let sealing_key = file.to_str().expect("text").to_owned();
    Hubs {
        config: ClusterConfig { servers, jetstream: true, sealing_key, ..ClusterConfig::default() },
        _folder: folder,
    }
}

async fn open(config: &ClusterConfig) -> JetStream {
    JetStream::open(config, AUDIO_BYTES).await.expect("opened")
}

async fn refused(config: &ClusterConfig) -> ClusterError {
    JetStream::open(config, AUDIO_BYTES).await.err().expect("refused")
}

#[tokio::test]
async fn a_record_has_one_owner_by_its_revision() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = open(&hubs.config).await;
    let two = open(&hubs.config).await;
    assert_eq!(one.sessions().get("a").await, Ok(None));
    let first = one.sessions().create("a", b"1", None).await.unwrap();
    assert_eq!(two.sessions().create("a", b"2", None).await, Err(RecordError::Conflict));
    let record = two.sessions().get("a").await.unwrap().unwrap();
    assert_eq!((record.value.as_slice(), record.revision), (&b"1"[..], first));
    let second = two.sessions().update("a", b"2", first, None).await.unwrap();
    assert!(second > first);
    assert_eq!(one.sessions().update("a", b"3", first, None).await, Err(RecordError::Conflict));
    assert_eq!(one.sessions().remove("a", Some(first)).await, Err(RecordError::Conflict));
    two.sessions().remove("a", Some(second)).await.unwrap();
    assert_eq!(one.sessions().get("a").await, Ok(None));
    // A record that was removed can be created again, by one of them.
    let (x, y) = tokio::join!(one.sessions().create("a", b"4", None), two.sessions().create("a", b"5", None));
    assert!(x.is_ok() != y.is_ok(), "{x:?} {y:?}");
    // Buckets do not see each other's records.
    assert_eq!(one.keys().get("a").await, Ok(None));
}

#[tokio::test]
async fn a_record_is_kept_for_its_time() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = open(&hubs.config).await;
    one.keys().put("short", b"1", Some(Duration::from_secs(1))).await.unwrap();
    one.keys().put("long", b"1", Some(Duration::from_secs(60))).await.unwrap();
    let gone = async {
        while one.keys().get("short").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SOON, gone).await.unwrap();
    assert!(one.keys().get("long").await.unwrap().is_some());
    one.keys().create("short", b"2", None).await.unwrap();
}

#[tokio::test]
async fn changes_are_followed() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = open(&hubs.config).await;
    let two = open(&hubs.config).await;
    one.jobs().put("a", b"1", None).await.unwrap();
    let mut changes = two.jobs().watch().await.unwrap();
    let mut next = async || loop {
        let change = timeout(SOON, changes.next()).await.unwrap().unwrap().unwrap();
        if !change.key.starts_with("probe") && change.key != KEY_CHECK {
            return (change.key, change.value.map(Result::unwrap));
        }
    };
    let mut seen = vec![next().await];
    let revision = one.jobs().put("b", b"2", None).await.unwrap();
    seen.push(next().await);
    one.jobs().remove("b", Some(revision)).await.unwrap();
    seen.push(next().await);
    let expect = [("a", Some(b"1".to_vec())), ("b", Some(b"2".to_vec())), ("b", None)];
    assert_eq!(seen, expect.map(|(key, value)| (key.to_owned(), value)));
}

#[tokio::test]
async fn an_object_is_read_as_it_was_written_or_not_at_all() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = open(&hubs.config).await;
    let two = open(&hubs.config).await;
    for n in [0, 1, 128 << 10, (128 << 10) + 1, 1_000_000] {
        let bytes: Vec<u8> = (0..n).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        one.audio().put("job/1", &bytes, None).await.unwrap();
        assert_eq!(two.audio().get("job/1").await.unwrap().unwrap().len(), bytes.len());
        assert_eq!(two.audio().get("job/1").await.unwrap().unwrap(), bytes);
    }
    // Removed while it is read: an error, no early end.
    let mut reader = two.audio().read("job/1").await.unwrap().unwrap();
    assert!(reader.next().await.unwrap().is_ok());
    one.audio().remove("job/1").await.unwrap();
    let rest: Vec<_> = reader.collect().await;
    assert_eq!(rest.last().unwrap(), &Err(RecordError::Missing));
    assert_eq!(two.audio().get("job/1").await, Ok(None));
    // An unfinished object is not listed.
    let mut writer = one.audio().write("job/2", None);
    writer.push(&[7; 300_000]).await.unwrap();
    assert_eq!(two.audio().get("job/2").await, Ok(None));
    writer.abandon().await;
}

#[tokio::test]
async fn a_hub_with_another_sealing_key_does_not_start() {
    let server = NatsServer::start().await.unwrap();
    let own = hubs(vec![server.url()]);
    let other = hubs(vec![server.url()]);
    open(&own.config).await;
    open(&own.config).await;
    let error = refused(&other.config).await;
    assert!(error.is_lasting() && error.to_string().contains("copy their file"), "{error}");
    assert!(!error.to_string().contains(&std::fs::read_to_string(&other.config.sealing_key).unwrap()));
    let ClusterError::OtherSealingKey { file, .. } = error else { panic!("{error}") };
    assert_eq!(file, other.config.sealing_key);
    // The key is exchanged, as `antiphon cluster sealing-key --help` says.
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    for bucket in
        ["KV_antiphon-sessions", "KV_antiphon-keys", "KV_antiphon-jobs", "OBJ_antiphon-audio", "ANTIPHON_JOBS"]
    {
        context.delete_stream(bucket).await.unwrap();
    }
    open(&other.config).await;
    assert!(matches!(refused(&own.config).await, ClusterError::OtherSealingKey { .. }));
}

#[tokio::test]
async fn of_two_first_hubs_with_different_keys_one_starts() {
    for _ in 0..5 {
        let server = NatsServer::start().await.unwrap();
        let own = hubs(vec![server.url()]);
        let other = hubs(vec![server.url()]);
        let (one, two) =
            tokio::join!(JetStream::open(&own.config, AUDIO_BYTES), JetStream::open(&other.config, AUDIO_BYTES));
        assert!(one.is_ok() != two.is_ok());
        let error = one.err().or(two.err()).unwrap();
        assert!(matches!(error, ClusterError::OtherSealingKey { .. }), "{error}");
    }
}

#[tokio::test]
async fn another_clusters_records_are_not_opened() {
    let server = NatsServer::start().await.unwrap();
    let own = hubs(vec![server.url()]);
    let other = hubs(vec![server.url()]);
    let two = open(&other.config).await;
    two.jobs().remove(KEY_CHECK, None).await.unwrap();
    let one = open(&own.config).await;
    one.sessions().put("a", b"1", None).await.unwrap();
    one.audio().put("a", b"1", None).await.unwrap();
    assert_eq!(two.sessions().get("a").await, Err(RecordError::Sealed(SealError::OtherKey)));
    assert_eq!(two.audio().get("a").await, Err(RecordError::Sealed(SealError::OtherKey)));
    let mut changes = two.sessions().watch().await.unwrap();
    let found = async {
        loop {
            let change = changes.next().await.unwrap().unwrap();
            if change.key == "a" {
                return change.value;
            }
        }
    };
    assert_eq!(timeout(SOON, found).await.unwrap(), Some(Err(SealError::OtherKey)));
}

#[tokio::test]
async fn what_is_too_large_or_finds_no_room_is_not_written() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = JetStream::open(&hubs.config, 1 << 20).await.unwrap();
    let large = vec![0; Bucket::MAX_VALUE_BYTES + 1];
    let error = one.sessions().put("a", &large, None).await.unwrap_err();
    assert_eq!(error, RecordError::TooLarge { found: large.len(), most: Bucket::MAX_VALUE_BYTES });
    one.sessions().put("a", &large[1..], None).await.unwrap();
    assert_eq!(one.sessions().get("a").await.unwrap().unwrap().value.len(), large.len() - 1);
    let error = one.audio().put("a", &vec![0; 2 << 20], None).await.unwrap_err();
    assert!(matches!(error, RecordError::Full(_)), "{error:?}");
    assert_eq!(one.audio().get("a").await, Ok(None));
    // Nothing half-made takes the room of what comes.
    one.audio().put("b", &vec![0; 900 << 10], None).await.unwrap();
}

#[tokio::test]
async fn a_job_goes_to_one_hub_and_on_to_the_next() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let one = open(&hubs.config).await;
    let two = open(&hubs.config).await;
    let next = async |hub: &JetStream| loop {
        if let Some(task) = timeout(SOON, hub.queue().pull()).await.unwrap().unwrap() {
            match task.id.as_str() {
                "probe" => task.done().await.unwrap(),
                _ => return task,
            }
        }
    };
    one.queue().push("job_a").await.unwrap();
    two.queue().push("job_a").await.unwrap();
    let task = next(&one).await;
    assert_eq!(task.id, "job_a");
    // It is there once, while it is worked on too.
    two.queue().push("job_a").await.unwrap();
    two.queue().push("job_b").await.unwrap();
    let other = next(&two).await;
    assert_eq!(other.id, "job_b");
    task.release().await;
    let task = next(&two).await;
    assert_eq!(task.id, "job_a");
    task.done().await.unwrap();
    // A hub that says nothing loses it after 10 s, one that makes progress does not.
    let begun = Instant::now();
    drop(other);
    let task = next(&one).await;
    assert_eq!(task.id, "job_b");
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
    task.done().await.unwrap();
    one.queue().push("job_a").await.unwrap();
    next(&two).await.done().await.unwrap();
}

#[tokio::test]
async fn the_printed_permissions_suffice_and_are_needed() {
    let hub = KeyPair::new_user();
    let worker = KeyPair::new_user();
    let environment = Environment::new("production").unwrap().with_hub(&hub.public_key()).unwrap();
    let environment = environment.with_worker(&worker.public_key()).unwrap();
    let text = configuration(&Permissions::new(vec![environment]).unwrap());
    let server = NatsServer::start_with(&text).await.unwrap();
    let mut hubs = hubs(vec![server.url()]);
    let seed = |key: &KeyPair, folder: &Path, name: &str| {
        let file = folder.join(name);
        std::fs::write(&file, key.seed().unwrap()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    hubs.config.credentials = seed(&hub, folder.path(), "hub");
    let one = open(&hubs.config).await;
    let revision = one.sessions().put("a", b"1", None).await.unwrap();
    one.sessions().update("a", b"2", revision, None).await.unwrap();
    let mut changes = one.jobs().watch().await.unwrap();
    one.jobs().put("a", b"1", None).await.unwrap();
    timeout(SOON, changes.next()).await.unwrap().unwrap().unwrap();
    one.audio().put("a", &[7; 300_000], None).await.unwrap();
    assert_eq!(one.audio().get("a").await.unwrap().unwrap().len(), 300_000);
    one.audio().remove("a").await.unwrap();
    one.queue().push("job_a").await.unwrap();
    while let Some(task) = one.queue().pull().await.unwrap() {
        task.progress().await;
        task.done().await.unwrap();
        if task.id == "job_a" {
            break;
        }
    }
    // A second hub, whose settings want the streams changed.
    assert!(JetStream::open(&hubs.config, AUDIO_BYTES * 2).await.is_ok());
    // A worker may not.
    hubs.config.credentials = seed(&worker, folder.path(), "worker");
    let error = refused(&hubs.config).await;
    assert!(matches!(&error, ClusterError::Permission { .. }), "{error}");
    // Nor a hub with the permissions of a version before.
    for missing in ["$KV.antiphon-keys.>", "$JS.ACK.ANTIPHON_JOBS.>", "antiphon.v1.inbox.>", "$O.antiphon-audio.>"] {
        let text = text.replace(&format!(", \"{missing}\""), "");
        let server = NatsServer::start_with(&text).await.unwrap();
        hubs.config.credentials = seed(&hub, folder.path(), "hub");
        hubs.config.servers = vec![server.url()];
        let error = refused(&hubs.config).await;
        let says = matches!(&error, ClusterError::Permission { message, .. }
            if message.to_lowercase().contains(missing.trim_end_matches('>').to_lowercase().as_str()));
        assert!(says, "{missing}: {error}");
    }
}

#[tokio::test]
async fn a_hub_says_what_it_lacks() {
    let server = NatsServer::start().await.unwrap();
    let mut hubs = hubs(vec![server.url()]);
    hubs.config.replicas = 3;
    let error = refused(&hubs.config).await;
    assert!(matches!(error, ClusterError::Replicas { replicas: 3, .. }) && error.is_lasting(), "{error}");
    hubs.config.replicas = 1;
    let error = JetStream::open(&hubs.config, 1 << 60).await.err().unwrap();
    assert!(matches!(error, ClusterError::Storage { .. }), "{error}");
    hubs.config.sealing_key = String::new();
    let error = refused(&hubs.config).await;
    assert!(matches!(error, ClusterError::Setting { setting: "sealing_key", .. }), "{error}");
    hubs.config.servers.clear();
    assert!(hubs.config.is_set());

    let without = NatsServer::start_with("accounts { A { users: [{user: a, password: a}] } }\nno_auth_user: a").await;
    let without = without.unwrap();
    let hubs = self::hubs(vec![without.url()]);
    let error = refused(&hubs.config).await;
    assert!(matches!(error, ClusterError::NoJetStream { .. }) && error.is_lasting(), "{error}");
    // What may pass is no wrong setting.
    let gone = self::hubs(vec!["nats://127.0.0.1:1".into()]);
    assert!(!refused(&gone.config).await.is_lasting());
}

#[test]
fn problems_of_the_settings_are_found_together_and_without_a_server() {
    let said = |config: &ClusterConfig| config.problems().iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut config = ClusterConfig { jetstream: true, ..ClusterConfig::default() };
    let found = said(&config);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("cluster.servers: no server") && found[1].starts_with("cluster.sealing_key: no file"));
    config.servers = vec!["nats://192.0.2.1".into(), "nats://192.0.2.2".into()];
    config.credentials = "nowhere.seed".into();
    config.sealing_key = "nowhere.key".into();
    let found = said(&config).join("\n");
    for expect in ["192.0.2.1 is another", "192.0.2.2 is another", "nowhere.seed", "nowhere.key"] {
        assert!(found.contains(expect), "{expect}: {found}");
    }
    let hubs = hubs(vec!["nats://127.0.0.1:4222".into()]);
    assert!(said(&hubs.config).is_empty());
    assert!(said(&ClusterConfig::default()).is_empty());
}

#[tokio::test]
async fn what_is_there_already_gets_the_settings_of_this_version_or_is_named() {
    let server = NatsServer::start().await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let made = |name: &str, subjects: &str, retention| async_nats::jetstream::stream::Config {
        name: name.into(),
        subjects: vec![subjects.into()],
        retention,
        ..Default::default()
    };
    use async_nats::jetstream::stream::RetentionPolicy::{Limits, WorkQueue};
    context.create_stream(made("KV_antiphon-keys", "$KV.antiphon-keys.>", Limits)).await.unwrap();
    open(&hubs.config).await;
    let info = context.get_stream("KV_antiphon-keys").await.unwrap().get_info().await.unwrap();
    assert_eq!((info.config.max_messages_per_subject, info.config.max_bytes), (1, 64 << 20));

    let server = NatsServer::start().await.unwrap();
    let hubs = self::hubs(vec![server.url()]);
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    context.create_stream(made("KV_antiphon-keys", "$KV.antiphon-keys.>", WorkQueue)).await.unwrap();
    let error = refused(&hubs.config).await;
    assert!(matches!(&error, ClusterError::Stream { name, .. } if name == "KV_antiphon-keys"), "{error}");
}

#[tokio::test]
async fn three_servers_keep_three_copies_and_lose_one() {
    let mut cluster = NatsCluster::start(3).await.unwrap();
    let mut hubs = hubs(cluster.urls());
    hubs.config.replicas = 3;
    let one = open(&hubs.config).await;
    let revision = one.sessions().create("a", b"1", None).await.unwrap();
    one.audio().put("a", &[7; 300_000], None).await.unwrap();
    cluster.kill(0).await;
    let written = async {
        let mut revision = revision;
        loop {
            match one.sessions().update("a", b"2", revision, None).await {
                Ok(_) => break,
                // A leader is being elected, and the first attempt may have been made.
                Err(RecordError::Away(_) | RecordError::Conflict) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    match one.sessions().get("a").await {
                        Ok(Some(record)) if record.value == b"2" => break,
                        Ok(Some(record)) => revision = record.revision,
                        _ => {}
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(SOON * 2, written).await.unwrap();
    let read = async {
        loop {
            if let Ok(Some(bytes)) = one.audio().get("a").await {
                return bytes.len();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(timeout(SOON * 2, read).await.unwrap(), 300_000);
}

#[tokio::test]
async fn a_hub_that_starts_before_the_third_server_waits_for_it() {
    let mut cluster = NatsCluster::start(2).await.unwrap();
    let mut hubs = hubs(cluster.urls());
    hubs.config.replicas = 3;
    let mut context = async_nats::jetstream::new(async_nats::connect(cluster.server(0).url()).await.unwrap());
    // What is asked before a leader is elected is left without an answer.
    context.set_timeout(Duration::from_secs(1));
    let three = async_nats::jetstream::stream::Config { name: "three".into(), num_replicas: 3, ..Default::default() };
    let refused = async {
        // A leader is elected first.
        while !context.create_stream(three.clone()).await.is_err_and(|error| error.to_string().contains("10005")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SOON * 2, refused).await.expect("three copies on two servers are refused");
    let (jetstream, grown) = tokio::join!(open(&hubs.config), cluster.grow());
    grown.unwrap();
    jetstream.sessions().create("a", b"1", None).await.unwrap();
}

#[tokio::test]
async fn a_further_hub_needs_no_room_of_its_own() {
    // Room for the streams once, and not twice.
    let server = NatsServer::start_with("jetstream { max_file_store: 2GB }").await.unwrap();
    let hubs = hubs(vec![server.url()]);
    let (one, two, three) = tokio::join!(
        JetStream::open(&hubs.config, AUDIO_BYTES),
        JetStream::open(&hubs.config, AUDIO_BYTES),
        JetStream::open(&hubs.config, AUDIO_BYTES)
    );
    for opened in [one, two, three] {
        opened.expect("there is room").sessions().put("a", b"1", None).await.unwrap();
    }
    open(&hubs.config).await;
}
