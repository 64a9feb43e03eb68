//! Hubs that do not follow the records, so that only revisions show who holds a job.

use super::*;
use crate::server::access::keys::{Keys, digest, hex};
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::{ClusterConfig, SealingKey};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const BOUNDS: Bounds = Bounds { n_open: 3, bytes: 100_000, keep_s: 100 };

async fn hubs() -> (NatsServer, ClusterStore, ClusterStore) {
    hubs_with(64 << 20, BOUNDS).await
}

async fn hubs_with(audio_bytes: u64, bounds: Bounds) -> (NatsServer, ClusterStore, ClusterStore) {
    let server = NatsServer::start().await.expect("nats-server");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, SealingKey::generate().encoded()).expect("written");
    let sealing_key = key.to_str().expect("text").to_owned();
    let config =
        ClusterConfig { servers: vec![server.url()], jetstream: true, sealing_key, ..ClusterConfig::default() };
    let hub = async || {
        let jetstream = JetStream::open(&config, audio_bytes).await.expect("opened");
        ClusterStore::new(jetstream, bounds, TaskTracker::new(), Arc::new(LiveKeys::new(Keys::default())))
    };
    let one = hub().await;
    let two = hub().await;
    (server, one, two)
}

fn spec() -> SpeechSpec {
    SpeechSpec {
        chunks: vec!["one".into(), "two".into()],
        n_chars: 7,
        voice: "v".into(),
        is_own_voice: true,
        seed: None,
        speed: 1.0,
        instructions: Some("Whisper.".into()),
        format: FileFormat::Pcm,
        as_events: false,
        model: None,
    }
}

async fn next(hub: &ClusterStore) -> (Claim, SpeechSpec) {
    timeout(SOON, hub.claim_next()).await.expect("a job comes")
}

async fn file(hub: &ClusterStore, id: &str) -> Vec<u8> {
    let mut pieces = hub.file(Viewer::All, id).await.expect("read").expect("there");
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece.expect("a piece"));
    }
    bytes
}

#[tokio::test]
async fn an_attempt_that_lost_its_job_writes_no_more_and_the_next_one_goes_on() {
    let (_server, one, two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (mut first, spec) = next(&one).await;
    assert_eq!((spec.chunks.len(), spec.instructions.as_deref(), spec.seed.is_some()), (2, Some("Whisper."), true));
    first.append(&[1; 100]).await.expect("kept");
    // The queue takes the first one for dead.
    first.task.release().await;
    let (mut second, again) = next(&two).await;
    assert_eq!((second.job().n_done, second.job().pcm_bytes, again.seed), (1, 200, spec.seed));
    let holder = two.record("job_a").await.expect("read").expect("there");
    assert!(matches!(first.append(&[2; 100]).await, Err(Stop::Moved)));
    assert!(matches!(first.finish(&CancellationToken::new()).await, Err(Stop::Moved)));
    first.fail(Failure::new("server_error", "It is not the first one's to say so.")).await;
    assert_eq!(two.record("job_a").await.expect("read").expect("there"), holder);
    second.append(&[3; 50]).await.expect("kept");
    second.finish(&CancellationToken::new()).await.expect("finished");
    let expect: Vec<u8> = [[1, 0].repeat(100), [3, 0].repeat(50)].concat();
    assert_eq!(file(&one, "job_a").await, expect);
    let job = one.job_for(Viewer::All, "job_a").await.expect("there");
    assert_eq!((job.status, job.file_bytes, job.n_done), (Status::Completed, 300, 2));
    // Nothing of it is done once more, even if the queue forgets that it was done.
    one.jetstream.queue().push("job_a").await.expect("queued");
    assert!(timeout(Duration::from_millis(500), two.claim_next()).await.is_err());
    assert_eq!(two.job_for(Viewer::All, "job_a").await, Ok(job));
    assert_eq!(file(&two, "job_a").await, expect);
}

#[tokio::test]
async fn an_attempt_that_lost_its_job_removes_only_what_the_next_one_does_not_use() {
    let (_server, one, two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (mut first, _) = next(&one).await;
    let before = first.stored.clone();
    let stale = first.revision;
    first.append(&[1; 100]).await.expect("kept");
    first.task.release().await;
    let (mut second, _) = next(&two).await;
    assert_eq!(second.job().n_done, 1);
    // A chunk behind it is not in the record.
    assert!(matches!(first.append(&[2; 100]).await, Err(Stop::Moved)));
    // As if the answer to the first write had been lost: the record names this chunk.
    first.stored = before;
    first.revision = stale;
    assert!(matches!(first.append(&[1; 100]).await, Err(Stop::Moved)));
    one.tasks.close();
    timeout(SOON, one.tasks.wait()).await.expect("removed");
    assert_eq!(one.jetstream.audio().count().await, Ok(2), "the text and the chunk");
    second.append(&[3; 50]).await.expect("kept");
    second.finish(&CancellationToken::new()).await.expect("finished");
    let expect: Vec<u8> = [[1, 0].repeat(100), [3, 0].repeat(50)].concat();
    assert_eq!(file(&two, "job_a").await, expect);
}

#[tokio::test]
async fn the_text_of_a_job_that_was_made_without_an_answer_stays() {
    let (_server, one, two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (stored, _) = one.record("job_a").await.expect("read").expect("there");
    let other = "job_a/text-0".to_owned();
    one.jetstream.audio().put(&other, b"of a request that made none", Some(UNFINISHED_FOR)).await.expect("kept");
    for text in [stored.request, other] {
        one.discard_unnamed_text("job_a", text);
    }
    one.tasks.close();
    timeout(SOON, one.tasks.wait()).await.expect("removed");
    assert_eq!(one.jetstream.audio().count().await, Ok(1), "the job's");
    let (_claim, text) = next(&two).await;
    assert_eq!(text.chunks, spec().chunks);
}

#[tokio::test]
async fn the_text_of_a_job_that_only_a_newer_hub_can_read_stays() {
    let (_server, one, _two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (stored, revision) = one.record("job_a").await.expect("read").expect("there");
    let text = stored.request.clone();
    let newer = JobRecord { schema: SCHEMA + 1, ..stored };
    one.jetstream.jobs().update("job_a", &newer.bytes(), revision, None).await.expect("written");
    one.discard_unnamed_text("job_a", text);
    one.tasks.close();
    timeout(SOON, one.tasks.wait()).await.expect("ended");
    assert_eq!(one.jetstream.audio().count().await, Ok(1));
}

#[tokio::test]
async fn a_write_without_an_answer_is_known_by_what_it_wrote() {
    let (_server, one, _two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    let stale = claim.revision;
    claim.append(&[1; 100]).await.expect("kept");
    let written = claim.stored.clone();
    claim.revision = stale;
    claim.write(written, UNFINISHED_FOR).await.expect("it is its own");
    claim.append(&[1; 100]).await.expect("kept");
    claim.revision = stale;
    let mut other = claim.stored.clone();
    other.n_done = 9;
    assert!(matches!(claim.write(other, UNFINISHED_FOR).await, Err(Stop::Moved)));
}

#[tokio::test]
async fn a_removed_job_is_not_written_again() {
    let (_server, one, two) = hubs().await;
    let owner = JobOwner { key: None, max_open: usize::MAX };
    let AddedJob { job, .. } = one.add("job_a", owner, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    claim.append(&[1; 100]).await.expect("kept");
    two.remove(Viewer::All, &job.id).await.expect("removed");
    assert!(matches!(claim.append(&[1; 100]).await, Err(Stop::Gone)));
    assert_eq!(one.job_for(Viewer::All, "job_a").await.expect_err("gone").code, "job_not_found");
    drop(claim);
    // What it had is gone with it.
    one.tasks.close();
    two.tasks.close();
    let removed = async { tokio::join!(one.tasks.wait(), two.tasks.wait()) };
    timeout(SOON, removed).await.expect("removed");
    assert_eq!(one.jetstream.audio().count().await, Ok(0));
}

#[tokio::test]
async fn another_voice_begins_again_and_a_finished_job_leaves_its_file_only() {
    let (_server, one, _two) = hubs().await;
    one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    claim.append(&[1; 100]).await.expect("kept");
    claim.revoice("w").await.expect("changed");
    assert_eq!((claim.job().n_done, claim.job().voice.as_str()), (0, "w"));
    claim.append(&[2; 10]).await.expect("kept");
    claim.append(&[3; 10]).await.expect("kept");
    claim.finish(&CancellationToken::new()).await.expect("finished");
    drop(claim);
    assert_eq!(file(&one, "job_a").await, [[2, 0].repeat(10), [3, 0].repeat(10)].concat());
    one.tasks.close();
    timeout(SOON, one.tasks.wait()).await.expect("removed");
    assert_eq!(one.jetstream.audio().count().await, Ok(1));
}

#[tokio::test]
async fn jobs_are_their_owners() {
    let (_server, one, two) = hubs().await;
    let key = |n: u8| KeyId::new([n; 16]);
    one.add("job_a", JobOwner { key: Some(key(1)), max_open: usize::MAX }, &spec(), None).await.expect("added");
    one.add("job_b", JobOwner { key: Some(key(2)), max_open: usize::MAX }, &spec(), None).await.expect("added");
    for (viewer, sees) in [
        (Viewer::All, [true, true]),
        (Viewer::Key(key(1)), [true, false]),
        (Viewer::Key(key(3)), [false, false]),
        (Viewer::Nobody, [false, false]),
    ] {
        for (id, sees) in ["job_a", "job_b"].into_iter().zip(sees) {
            assert_eq!(two.job_for(viewer, id).await.is_ok(), sees, "{viewer:?} {id}");
            assert_eq!(
                one.list(viewer, None, 9).await.expect("listed").iter().any(|job| job.id == id),
                sees,
                "{viewer:?} {id}"
            );
        }
        if sees == [false, false] {
            assert_eq!(two.remove(viewer, "job_a").await.expect_err("not theirs").code, "job_not_found");
        }
    }
    assert_eq!(
        one.list(Viewer::All, None, 9).await.expect("listed").first().map(|job| job.id.clone()),
        Some("job_b".into())
    );
    assert_eq!(one.list(Viewer::All, Some("job_b"), 9).await.expect("listed").len(), 1);
    // Another key's job, and one that is gone.
    for (viewer, after) in [(Viewer::Key(key(1)), "job_b"), (Viewer::All, "job_gone")] {
        let refused = one.list(viewer, Some(after), 9).await.expect_err("no such page");
        assert_eq!((refused.status.as_u16(), refused.param), (400, Some("after")), "{after}");
    }
    one.remove(Viewer::All, "job_b").await.expect("removed");
    assert_eq!(one.list(Viewer::All, Some("job_b"), 9).await.expect_err("no such page").code, "invalid_value");
}

#[tokio::test]
async fn a_job_of_an_unknown_key_is_left_to_other_hubs_as_it_is() {
    let (_server, one, two) = hubs().await;
    let owner = JobOwner { key: Keys::of(&["one"]).find("one"), max_open: usize::MAX };
    one.keys.replace(Keys::of(&["two"]));
    one.add("job_a", owner, &spec(), None).await.expect("added");
    let stored = one.record("job_a").await.expect("read").expect("there");
    assert!(timeout(Duration::from_millis(500), one.claim_next()).await.is_err());
    assert_eq!(two.record("job_a").await.expect("read").expect("there"), stored);
    // A key that goes while its job is under way is unknown from then on.
    two.add("job_b", owner, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&two).await;
    two.keys.replace(Keys::of(&["two"]));
    assert!(!claim.revoke().await);
    drop(claim);
    let (stored, _) = one.record("job_b").await.expect("read").expect("there");
    assert_eq!((stored.status(), stored.attempt), (Status::Queued, None));
    assert!(timeout(Duration::from_millis(500), two.claim_next()).await.is_err(), "not at once");
}

#[tokio::test]
async fn a_job_fails_whose_key_no_hub_has_known_for_a_day() {
    let (_server, one, two) = hubs().await;
    let owner = JobOwner { key: Keys::of(&["one"]).find("one"), max_open: usize::MAX };
    one.add("job_a", owner, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    one.keys.replace(Keys::of(&["two"]));
    // `revoke` reads the record again, which has the time.
    let mut stored = claim.stored.clone();
    stored.created -= KEYS_DIFFER_FOR_S;
    let revision = claim.revision;
    one.jetstream.jobs().update("job_a", &stored.bytes(), revision, Some(UNFINISHED_FOR)).await.expect("written");
    assert!(claim.revoke().await);
    drop(claim);
    let job = two.job_for(Viewer::All, "job_a").await.expect("there");
    assert_eq!((job.status, job.failure), (Status::Failed, Some(Failure::key_revoked())));
}

#[tokio::test]
async fn a_job_fails_at_once_where_its_key_is_known_and_may_not_speak() {
    let (_server, one, two) = hubs().await;
    let owner = JobOwner { key: Keys::of(&["one"]).find("one"), max_open: usize::MAX };
    let entry = format!("[[key]]\nname = \"one\"\nsha256 = \"{}\"\n", hex(&digest("one")));
    let expired = format!("{entry}expires = 2020-01-01T00:00:00Z\n");
    one.keys.replace(Keys::of_text(&expired).expect("keys"));
    one.add("job_a", owner, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    let revision = claim.revision;
    claim.append(&[1; 100]).await.expect("kept");
    // The work was stopped before the answer to the write came.
    claim.revision = revision;
    assert!(claim.revoke().await);
    drop(claim);
    let job = two.job_for(Viewer::All, "job_a").await.expect("there");
    assert_eq!((job.status, job.failure), (Status::Failed, Some(Failure::key_revoked())));
}

#[test]
fn an_owner_that_this_hub_does_not_know_holds_up_no_other() {
    let first = KeyId::new([1; 16]);
    let second = KeyId::new([2; 16]);
    let running = JobRecord {
        status: Status::Running.name().into(),
        started: Some(1),
        ..JobRecord::new(Some(first), &spec(), "text".into(), None)
    };
    let mut index = Index::default();
    index.note("job_a", 1, Some(running));
    index.note("job_b", 2, Some(JobRecord::new(Some(second), &spec(), "text".into(), None)));
    let first = first.to_string();
    assert!(index.lets_others_first(Some(&first), |_| true));
    assert!(!index.lets_others_first(Some(&first), |owner| owner == Some(first.as_str())));
}

#[test]
fn jobs_that_were_removed_or_whose_time_is_over_take_no_memory() {
    let queued = JobRecord::new(None, &spec(), "text".into(), None);
    let ended_at = |ended: i64| JobRecord { ended: Some(ended), ..queued.clone() };
    let mut index = Index::default();
    index.note("job_removed", 1, Some(queued.clone()));
    index.note("job_removed", 2, None);
    index.note("job_old", 3, Some(ended_at(800)));
    index.note("job_new", 4, Some(ended_at(950)));
    index.note("job_queued", 5, Some(queued));
    index.forget_gone(100, 1_000);
    let mut known: Vec<&str> = index.records.keys().map(String::as_str).collect();
    known.sort_unstable();
    assert_eq!(known, ["job_new", "job_queued"]);
}

#[tokio::test]
async fn where_jetstream_is_full_nothing_half_made_is_left() {
    let (_server, one, two) = hubs_with(1 << 20, Bounds { bytes: 1 << 30, ..BOUNDS }).await;
    let large = SpeechSpec { chunks: vec!["x".repeat(2 << 20)], ..spec() };
    let error =
        one.add("job_a", JobOwner { key: None, max_open: usize::MAX }, &large, None).await.expect_err("no room");
    assert_eq!((error.status, error.code), (StatusCode::INSUFFICIENT_STORAGE, "storage_failed"));
    assert_eq!(two.job_for(Viewer::All, "job_a").await.expect_err("none").code, "job_not_found");
    assert_eq!((one.jetstream.audio().count().await, one.n_open()), (Ok(0), 0));
    // A job that finds no room for its sound fails and leaves room for the next one.
    one.add("job_b", JobOwner { key: None, max_open: usize::MAX }, &spec(), None).await.expect("added");
    let (mut claim, _) = next(&one).await;
    claim.append(&vec![1; 200_000]).await.expect("kept");
    let Err(Stop::Failed(failure)) = claim.append(&vec![1; 400_000]).await else { panic!("it fits") };
    assert_eq!(failure.code, "store_full");
    claim.fail(failure).await;
    drop(claim);
    let job = two.job_for(Viewer::All, "job_b").await.expect("there");
    assert_eq!((job.status, job.failure.map(|failure| failure.code)), (Status::Failed, Some("store_full".into())));
    one.tasks.close();
    timeout(SOON, one.tasks.wait()).await.expect("removed");
    assert_eq!(one.jetstream.audio().count().await, Ok(0));
    one.jetstream.audio().put("x", &vec![0; 900_000], None).await.expect("there is room again");
}

#[tokio::test]
async fn keys_of_a_cluster_take_turns_and_leave_places_to_others() {
    let key = |n: u8| KeyId::new([n; 16]);
    let (_server, one, _two) = hubs_with(64 << 20, Bounds { n_open: 20, ..BOUNDS }).await;
    for n in 0..8 {
        one.add(&format!("job_a{n}"), JobOwner { key: Some(key(1)), max_open: 8 }, &spec(), None).await.expect("added");
    }
    let error =
        one.add("job_a8", JobOwner { key: Some(key(1)), max_open: 8 }, &spec(), None).await.expect_err("its share");
    assert_eq!(error.code, "too_many_jobs");
    one.add("job_b0", JobOwner { key: Some(key(2)), max_open: 8 }, &spec(), None).await.expect("another key");
    let (first, _) = next(&one).await;
    let (second, _) = next(&one).await;
    assert_eq!((first.job().id.as_str(), second.job().id.as_str()), ("job_a0", "job_b0"));
    // A turn that does not come holds up nothing for long.
    one.index().records.get_mut("job_b0").expect("known").1.as_mut().expect("there").status = "queued".into();
    let (third, _) = next(&one).await;
    assert!(third.job().id.starts_with("job_a"));
}
