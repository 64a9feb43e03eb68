//! The store on a disk of its own.

use super::*;

const BOUNDS: Bounds = Bounds { n_open: 3, bytes: 10_000, keep_s: 100 };

fn spec(n_chunks: usize, format: FileFormat) -> SpeechSpec {
    let chunks = (0..n_chunks).map(|n| format!("chunk {n}")).collect();
    SpeechSpec {
        chunks,
        n_chars: 7 * n_chunks,
        voice: "v".into(),
        is_own_voice: true,
        seed: None,
        speed: 1.5,
        instructions: Some("Whisper.".into()),
        format,
        as_events: false,
        model: Some("m:fp16".into()),
    }
}

fn open(folder: &Path) -> Store {
    Store::open(folder, BOUNDS, None).expect("opened")
}

/// A job that is finished, its file of so many bytes.
fn finished(store: &mut Store, id: &str, bytes: usize, now: i64) {
    store.add(id, (None, usize::MAX), &spec(1, FileFormat::Mp3), None, now).expect("added");
    assert_eq!(store.take(now).expect("taken").expect("a job").0.id, id);
    store.append(id, &[1; 10], now).expect("kept");
    let part = store.folder.join(format!("{id}.x.part"));
    fs::write(&part, vec![0; bytes]).expect("written");
    store.finish(id, &part, now).expect("finished");
}

#[test]
fn a_job_goes_on_where_it_was_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(3, FileFormat::Flac), None, 5).expect("added");
    let (job, taken) = store.take(6).expect("taken").expect("a job");
    assert_eq!((taken, job.status, job.started), (spec(3, FileFormat::Flac), Status::Running, Some(6)));
    store.append("job_a", &[7; 100], 6).expect("kept");
    assert!(store.take(6).expect("taken").is_none(), "it is being worked on");
    // It breaks off in the middle of the next chunk.
    let spool = store.spool("job_a");
    drop(store);
    OpenOptions::new().append(true).open(&spool).expect("there").write_all(&[9; 51]).expect("written");
    fs::write(folder.path().join("job_a.0.part"), "half of it").expect("written");
    fs::write(folder.path().join("job_gone.mp3"), "nobody's").expect("written");
    fs::write(folder.path().join("letter.txt"), "somebody's").expect("written");
    let mut store = open(folder.path());
    let (job, _) = store.take(7).expect("taken").expect("it waits again");
    assert_eq!((job.id.as_str(), job.n_done, job.pcm_bytes), ("job_a", 1, 200));
    store.append("job_a", &[8; 2], 7).expect("kept");
    let samples = fs::read(&spool).expect("there");
    assert_eq!((samples.len(), &samples[198..]), (204, &[7, 0, 8, 0, 8, 0][..]));
    let left: Vec<_> =
        ["job_a.0.part", "job_gone.mp3", "letter.txt"].map(|name| folder.path().join(name).exists()).into();
    assert_eq!(left, [false, false, true]);
}

#[test]
fn the_file_of_a_job_that_cannot_be_read_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    finished(&mut store, "job_a", 100, 1);
    let file = store.file("job_a", FileFormat::Mp3);
    store.db.execute("UPDATE jobs SET voice = x'00'", []).expect("changed");
    drop(store);
    let store = open(folder.path());
    assert!(matches!(store.job("job_a"), Err(StoreError::Database(_))));
    assert!(file.is_file());
}

#[test]
fn a_completed_job_does_not_fail_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    finished(&mut store, "job_a", 100, 1);
    let completed = store.job("job_a").expect("there");
    store.fail("job_a", Failure::key_revoked(), 2);
    assert_eq!(store.job("job_a").expect("there"), completed);
    assert!(store.file("job_a", FileFormat::Mp3).is_file());
}

#[test]
fn jobs_of_the_version_before_are_still_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    let as_it_was = "ALTER TABLE jobs DROP COLUMN own_voice; ALTER TABLE jobs DROP COLUMN model; ALTER TABLE jobs DROP COLUMN owner; ALTER TABLE jobs DROP COLUMN instructions; ALTER TABLE jobs DROP COLUMN digest; PRAGMA user_version = 1";
    store.db.execute_batch(as_it_was).expect("as it was");
    drop(store);
    let (_, taken) = open(folder.path()).take(1).expect("taken").expect("a job");
    assert_eq!(taken, SpeechSpec { model: None, instructions: None, is_own_voice: false, ..spec(1, FileFormat::Pcm) });
}

#[test]
fn tables_are_changed_whole_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    // The second of two changes cannot be made.
    store.db.execute_batch("ALTER TABLE jobs DROP COLUMN model; PRAGMA user_version = 1").expect("set");
    drop(store);
    assert!(matches!(Store::open(folder.path(), BOUNDS, None), Err(StoreError::Database(_))));
    let db = Connection::open(folder.path().join("jobs.db")).expect("opened");
    assert!(db.prepare("SELECT model FROM jobs").is_err(), "nor was the first one");
    let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    assert_eq!(version.expect("told"), 1);
}

/// Makes the database one of version 6, from before jobs were encrypted.
fn to_version_6(store: Store) {
    store.db.execute_batch("DROP TABLE sealing; PRAGMA user_version = 6").expect("as it was");
}

#[test]
fn tables_of_a_version_before_are_kept_as_a_copy_until_their_jobs_are_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    for id in ["job_a", "job_b"] {
        store.add(id, (None, usize::MAX), &spec(1, FileFormat::Pcm), None, now()).expect("added");
    }
    to_version_6(store);
    let mut store = open(folder.path());
    assert_eq!(version_in(folder.path()).expect("read"), Some(JOBS_VERSION));
    let copy = folder.path().join("jobs.v6.db");
    assert_eq!(tables::version_of(&copy).expect("read"), Some(6));
    let permissions = fs::metadata(&copy).expect("there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o600);
    store.delete("job_a").expect("deleted");
    let ids = |path: &Path| {
        let db = Connection::open(path).expect("opened");
        let mut found = db.prepare("SELECT id FROM jobs").expect("read");
        found.query_map([], |row| row.get::<_, String>(0)).expect("read").collect::<Result<Vec<_>, _>>().expect("read")
    };
    assert_eq!(ids(&copy), ["job_b"], "what was deleted is in no copy");
    store.sweep(now() + BOUNDS.keep_s - 20).expect("swept");
    assert!(copy.exists());
    store.sweep(now() + BOUNDS.keep_s + 20).expect("swept");
    assert!(!copy.exists());
}

#[test]
fn tables_that_cannot_be_copied_are_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    to_version_6(open(folder.path()));
    // A folder where the copy should be.
    fs::create_dir(folder.path().join("jobs.v6.db")).expect("made");
    let said = Store::open(folder.path(), BOUNDS, None).err().expect("refused").to_string();
    assert!(
        said.contains("jobs.v6.db before its tables are changed") && said.ends_with("nothing was changed"),
        "{said}"
    );
    assert_eq!(version_in(folder.path()).expect("read"), Some(6));
}

#[test]
fn another_voice_begins_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(2, FileFormat::Pcm), None, 0).expect("added");
    store.append("job_a", &[7; 100], 0).expect("kept");
    store.revoice("job_a", "w").expect("changed");
    store.append("job_a", &[8; 2], 0).expect("kept");
    let job = store.job("job_a").expect("there");
    assert_eq!((job.voice.as_str(), job.n_done, job.pcm_bytes), ("w", 1, 4));
    assert_eq!(fs::read(store.spool("job_a")).expect("there"), [8, 0, 8, 0]);
    assert!(matches!(store.revoice("job_b", "w"), Err(StoreError::Gone)));
}

#[test]
fn a_deleted_text_is_nowhere_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    let secret = "a secret that nobody shall find";
    // More than a page of it.
    let chunks = vec![secret.to_owned(); 1_000];
    store.add("job_a", (None, usize::MAX), &SpeechSpec { chunks, ..spec(1, FileFormat::Pcm) }, None, 0).expect("added");
    let holds = |folder: &Path| {
        let files = fs::read_dir(folder).expect("there").map(|entry| entry.expect("one").path());
        files
            .filter(|path| {
                let bytes = fs::read(path).expect("read");
                bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
            })
            .count()
    };
    assert!(holds(folder.path()) > 0, "it is looked for where it would be");
    store.delete("job_a").expect("deleted");
    assert_eq!(holds(folder.path()), 0);
    // Nor what a version before has deleted.
    store.db.execute_batch("PRAGMA secure_delete = OFF").expect("set");
    let chunks = vec![secret.to_owned(); 1_000];
    store.add("job_b", (None, usize::MAX), &SpeechSpec { chunks, ..spec(1, FileFormat::Pcm) }, None, 0).expect("added");
    store.delete("job_b").expect("deleted");
    store
        .db
        .execute_batch(
            "ALTER TABLE jobs DROP COLUMN own_voice; ALTER TABLE jobs DROP COLUMN owner; ALTER TABLE jobs DROP COLUMN instructions; ALTER TABLE jobs DROP COLUMN digest; PRAGMA user_version = 2",
        )
        .expect("as it was");
    drop(store);
    assert!(holds(folder.path()) > 0, "it stands there");
    drop(open(folder.path()));
    assert_eq!(holds(folder.path()), 0);
}

#[test]
fn a_job_of_version_4_is_done_without_instructions() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    store
        .db
        .execute_batch(
            "ALTER TABLE jobs DROP COLUMN instructions; ALTER TABLE jobs DROP COLUMN digest; PRAGMA user_version = 4",
        )
        .expect("as it was");
    drop(store);
    let (_, taken) = open(folder.path()).take(1).expect("taken").expect("a job");
    assert_eq!(taken, SpeechSpec { instructions: None, ..spec(1, FileFormat::Pcm) });
}

#[test]
fn sound_that_a_power_cut_took_is_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(3, FileFormat::Pcm), None, 0).expect("added");
    store.take(0).expect("taken");
    store.append("job_a", &[7; 100], 0).expect("kept");
    fs::write(store.spool("job_a"), [7; 20]).expect("written");
    drop(store);
    let (job, _) = open(folder.path()).take(0).expect("taken").expect("a job");
    assert_eq!((job.n_done, job.pcm_bytes), (0, 0));
}

#[test]
fn one_hub_at_a_time_has_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path());
    assert!(matches!(Store::open(folder.path(), BOUNDS, None), Err(StoreError::Taken(_))));
    drop(first);
    open(folder.path());
}

#[test]
fn a_newer_database_is_refused_and_its_bytes_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    rusqlite::Connection::open(&path).expect("opened").pragma_update(None, "user_version", 9).expect("set");
    let as_it_was = fs::read(&path).expect("read");
    let refused = Store::open(folder.path(), BOUNDS, None).err().expect("refused");
    assert!(matches!(refused, StoreError::Newer(9)), "{refused}");
    assert!(refused.to_string().contains("install the newer program again"), "{refused}");
    assert_eq!(version_in(folder.path()).expect("read"), Some(9));
    assert_eq!(fs::read(&path).expect("read"), as_it_was);
}

#[test]
fn jobs_are_bounded_in_number_bytes_and_age() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    finished(&mut store, "job_1", 3_000, 10);
    finished(&mut store, "job_2", 3_000, 20);
    for id in ["job_3", "job_4", "job_5"] {
        store.add(id, (None, usize::MAX), &spec(1, FileFormat::Wav), None, 30).expect("added");
    }
    assert!(matches!(
        store.add("job_6", (None, usize::MAX), &spec(1, FileFormat::Wav), None, 30),
        Err(StoreError::TooMany(3))
    ));
    store.take(30).expect("taken");
    store.append("job_3", &[0; 2_500], 30).expect("the oldest makes room");
    let ids = |store: &Store| {
        store.list(Viewer::All, None, 9).expect("listed").into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&store), ["job_5", "job_4", "job_3", "job_2"]);
    assert!(!folder.path().join("job_1.mp3").exists());
    let full = store.append("job_3", &[0; 3_000], 30).expect_err("no room");
    assert_eq!(full.failure().code, "store_full");
    assert_eq!(ids(&store), ["job_5", "job_4", "job_3", "job_2"], "nothing that is finished has gone for it");
    store.fail("job_3", full.failure(), 40);
    assert!(!store.spool("job_3").exists());
    store.take(140).expect("taken");
    assert_eq!(ids(&store), ["job_5", "job_4"], "they were kept for 100 s");
    assert_eq!(store.list(Viewer::All, Some("job_5"), 9).expect("listed").len(), 1);
    assert!(matches!(store.list(Viewer::All, Some("job_3"), 9), Err(StoreError::NoSuchPage)), "it is gone");
}

#[test]
fn a_full_disk_is_told_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(2, FileFormat::Mp3), None, 0).expect("added");
    store.take(0).expect("taken");
    std::os::unix::fs::symlink("/dev/full", store.spool("job_a")).expect("linked");
    let failure = store.append("job_a", &[0; 100], 0).expect_err("no room").failure();
    assert_eq!(failure, Failure::new("disk_full", "The server's disk is full."));
    // Nor does the database take the news.
    store.db.execute_batch("PRAGMA query_only = ON").expect("set");
    store.fail("job_a", failure.clone(), 1);
    let job = store.job("job_a").expect("there");
    assert_eq!((job.status, job.failure), (Status::Failed, Some(failure)));
    assert_eq!(store.n_open().expect("counted"), 0);
}

#[test]
fn what_is_deleted_leaves_nothing_and_takes_nothing_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    finished(&mut store, "job_a", 10, 0);
    store.add("job_b", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    store.delete("job_a").expect("deleted");
    store.delete("job_b").expect("deleted");
    assert!(matches!(store.append("job_b", &[1], 0), Err(StoreError::Gone)));
    assert!(matches!(store.delete("job_b"), Err(StoreError::Gone)));
    assert!(matches!(store.job("../jobs"), Err(StoreError::Gone)));
    drop(store);
    let names: Vec<_> =
        fs::read_dir(folder.path()).expect("there").map(|entry| entry.expect("one").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("job_")), "{names:?}");
}

#[test]
fn a_job_is_its_owners_and_an_old_one_nobodys() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = |n: u8| KeyId::new([n; 16]);
    let mut store = open(folder.path());
    store.add("job_old", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    store
        .db
        .execute_batch(
            "ALTER TABLE jobs DROP COLUMN owner; ALTER TABLE jobs DROP COLUMN instructions; ALTER TABLE jobs DROP COLUMN digest; PRAGMA user_version = 3",
        )
        .expect("as it was");
    drop(store);
    let mut store = open(folder.path());
    store.add("job_a", (Some(key(1)), usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    store.add("job_b", (Some(key(2)), usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    let sees = |viewer: Viewer| -> Vec<String> {
        let listed: Vec<String> = store.list(viewer, None, 9).expect("listed").into_iter().map(|job| job.id).collect();
        for id in ["job_old", "job_a", "job_b"] {
            assert_eq!(store.job_for(viewer, id).is_ok(), listed.iter().any(|one| one == id), "{viewer:?} {id}");
        }
        listed
    };
    assert_eq!(sees(Viewer::All), ["job_b", "job_a", "job_old"]);
    assert_eq!(sees(Viewer::Key(key(1))), ["job_a"]);
    assert!(sees(Viewer::Key(key(3))).is_empty() && sees(Viewer::Nobody).is_empty());
    let foreign = store.list(Viewer::Key(key(1)), Some("job_b"), 9);
    assert!(matches!(foreign, Err(StoreError::NoSuchPage)), "it is another key's");
}

#[test]
fn a_request_with_an_idempotency_key_makes_one_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    let request = spec(1, FileFormat::Pcm);
    let first = store.add("job_a", (None, usize::MAX), &request, Some("1"), 0).expect("added");
    store.take(1).expect("taken");
    let again = store.add("job_a", (None, usize::MAX), &request, Some("1"), 2).expect("the same");
    assert_eq!((first.is_new, again.is_new), (true, false));
    let again = again.job;
    let n_open = store.n_open().expect("counted");
    assert_eq!((again.created, again.status, n_open), (first.job.created, Status::Running, 1));
    assert!(matches!(store.add("job_a", (None, usize::MAX), &request, Some("2"), 2), Err(StoreError::OtherRequest)));
    // A full queue does not refuse what is in it.
    for id in ["job_b", "job_c"] {
        store.add(id, (None, usize::MAX), &request, None, 2).expect("added");
    }
    assert!(matches!(store.add("job_d", (None, usize::MAX), &request, Some("1"), 2), Err(StoreError::TooMany(3))));
    store.add("job_a", (None, usize::MAX), &request, Some("1"), 2).expect("the same");
    // A job that is gone has left its key.
    store.delete("job_a").expect("deleted");
    assert!(store.add("job_a", (None, usize::MAX), &request, Some("2"), 3).expect("added").is_new);
}

#[test]
fn a_job_of_version_5_has_no_idempotency_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    store.add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    store.db.execute_batch("ALTER TABLE jobs DROP COLUMN digest; PRAGMA user_version = 5").expect("as it was");
    drop(store);
    let mut store = open(folder.path());
    assert_eq!(store.job("job_a").expect("there").id, "job_a");
    assert!(matches!(
        store.add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), Some("1"), 1),
        Err(StoreError::OtherRequest)
    ));
}

fn key() -> Option<Arc<dyn Sealing>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    fs::write(&path, antiphon_cluster::SealingKey::generate().encoded()).expect("written");
    Some(Arc::new(crate::config::StorageKey::read(&path).expect("a key")))
}

/// Whether a file in the folder holds these bytes.
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    let mut files =
        fs::read_dir(folder).expect("there").map(|entry| fs::read(entry.expect("one").path()).expect("read"));
    files.any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}

#[test]
fn a_sealed_job_goes_on_where_it_was_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = key();
    let open = || Store::open(folder.path(), BOUNDS, key.clone()).expect("opened");
    let mut store = open();
    let spec = spec(3, FileFormat::Flac);
    store.add("job_a", (None, usize::MAX), &spec, Some("1"), 5).expect("added");
    assert!(store.add("job_a", (None, usize::MAX), &spec, Some("1"), 5).is_ok());
    assert!(matches!(store.add("job_a", (None, usize::MAX), &spec, Some("2"), 5), Err(StoreError::OtherRequest)));
    assert_eq!(store.take(6).expect("taken").expect("a job").1, spec);
    let sound: Vec<i16> = (0..100).collect();
    store.append("job_a", &sound, 6).expect("kept");
    let spool = store.spool("job_a");
    for hidden in [&b"chunk 0"[..], b"Whisper.", &sound[..20].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>()]
    {
        assert!(!holds(folder.path(), hidden), "{hidden:?}");
    }
    drop(store);
    // The next block breaks off, once in its length and once in its content.
    for torn in [&[9; 3][..], &[100, 0, 0, 0, 1, 2, 3]] {
        OpenOptions::new().append(true).open(&spool).expect("there").write_all(torn).expect("written");
        let mut store = open();
        let (job, _) = store.take(7).expect("taken").expect("it waits again");
        assert_eq!(job.n_done as u64 * 200, job.pcm_bytes);
        store.append("job_a", &sound, 7).expect("kept");
    }
    let mut samples = Vec::new();
    read_spool(&spool, "job_a", key.as_ref()).expect("there").take(600).read_to_end(&mut samples).expect("whole");
    let expect: Vec<u8> = sound.iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(samples, expect.repeat(3));
    assert!(read_spool(&spool, "job_b", key.as_ref()).expect("there").read_to_end(&mut samples).is_err());
    // A power cut took a block that was counted.
    let file = OpenOptions::new().write(true).open(&spool).expect("there");
    file.set_len(file.metadata().expect("there").len() - 1).expect("cut");
    let (job, _) = open().take(8).expect("taken").expect("a job");
    assert_eq!((job.n_done, job.pcm_bytes), (0, 0));
}

#[test]
fn jobs_of_another_key_are_refused_and_an_empty_folder_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = key();
    let two = key();
    let open = |key: &Option<Arc<dyn Sealing>>| Store::open(folder.path(), BOUNDS, key.clone());
    let now = now();
    let refused = |key: &Option<Arc<dyn Sealing>>| open(key).err().expect("refused").to_string();
    open(&None).expect("new").add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, now).expect("added");
    assert!(refused(&one).contains("are not encrypted, and server.storage_key is set"));
    open(&None).expect("as before").delete("job_a").expect("deleted");
    open(&one).expect("empty").add("job_a", (None, usize::MAX), &spec(1, FileFormat::Pcm), None, now).expect("added");
    assert!(refused(&two).contains("it is sealed with another key"));
    assert!(refused(&None).contains("server.storage_key is empty"));
    let mut store = open(&one).expect("its own");
    store.fail("job_a", Failure::new("a", "because of chunk 0"), now - BOUNDS.keep_s);
    assert!(!holds(folder.path(), b"because of"));
    assert_eq!(store.job("job_a").expect("there").failure.expect("why").message, "because of chunk 0");
    drop(store);
    // It was kept long enough.
    open(&two).expect("empty");
    open(&None).expect("empty");
}

#[test]
fn a_text_that_was_changed_fails_its_job_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path(), BOUNDS, key()).expect("opened");
    for id in ["job_a", "job_b"] {
        store.add(id, (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
    }
    // The text of another job.
    let swap = "UPDATE jobs SET chunks = (SELECT chunks FROM jobs WHERE id = 'job_b') WHERE id = 'job_a'";
    store.db.execute(swap, []).expect("set");
    assert!(matches!(store.take(1), Err(StoreError::Sealed { column: "chunks", .. })));
    assert_eq!(store.job("job_a").expect("there").failure.expect("why").code, "storage_failed");
    assert_eq!(store.take(1).expect("taken").expect("a job").0.id, "job_b");
}

#[test]
fn the_sound_of_another_job_is_refused() {
    use antiphon_types::sealed::SealedError;
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path(), BOUNDS, key()).expect("opened");
    for id in ["job_a", "job_b"] {
        store.add(id, (None, usize::MAX), &spec(1, FileFormat::Pcm), None, 0).expect("added");
        store.append(id, &[1; 100], 0).expect("kept");
    }
    let why = |id: &str| {
        let mut sound = read_spool(&store.spool(id), id, store.sealing().as_ref()).expect("there");
        let error = sound.read_to_end(&mut Vec::new()).expect_err("it has no last block yet");
        error.get_ref().and_then(|inner| inner.downcast_ref::<SealedError>()).expect("of the format").why
    };
    assert_eq!(why("job_a"), OpenError::CutShort);
    fs::copy(store.spool("job_b"), store.spool("job_a")).expect("exchanged");
    assert_eq!(why("job_a"), OpenError::Changed);
    let names = [file_name("job_a"), file_name("job_b"), spool_name("job_a"), spool_name("job_b")];
    assert!((1..4).all(|n| !names[..n].contains(&names[n])), "{names:?}");
}

#[test]
fn keys_take_turns_in_the_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Bounds { n_open: 64, bytes: 1 << 20, keep_s: 1_000 };
    let mut store = Store::open(folder.path(), bounds, None).expect("opened");
    let key = |n: u8| KeyId::new([n; 16]);
    let keys = [Some(key(1)), Some(key(2)), Some(key(3)), None];
    let add = |store: &mut Store, id: &str, owner: usize, now| {
        store.add(id, (keys[owner], 64), &spec(1, FileFormat::Pcm), None, now).expect("added")
    };
    for n in 0..5 {
        add(&mut store, &format!("job_a{n}"), 0, n);
    }
    add(&mut store, "job_b0", 1, 10);
    add(&mut store, "job_b1", 1, 10);
    add(&mut store, "job_c0", 2, 11);
    let next = |store: &mut Store, now| {
        let (job, _) = store.take(now).expect("taken").expect("a job");
        store.fail(&job.id, Failure::new("server_error", "It is over."), now);
        job.id
    };
    let order: Vec<_> = (20..24).map(|now| next(&mut store, now)).collect();
    assert_eq!(order, ["job_a0", "job_b0", "job_c0", "job_a1"]);
    // One who comes later does not wait for what the others have queued; who has none under way comes first.
    add(&mut store, "job_d0", 3, 24);
    assert_eq!(store.take(24).expect("taken").expect("a job").0.id, "job_d0");
    add(&mut store, "job_d1", 3, 24);
    let order: Vec<_> = (25..29).map(|now| next(&mut store, now)).collect();
    assert_eq!(order, ["job_b1", "job_a2", "job_a3", "job_a4"]);
    assert_eq!(next(&mut store, 30), "job_d1");
}

#[test]
fn one_key_leaves_places_and_room_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Bounds { n_open: 4, bytes: 10_000, keep_s: 1_000 };
    let mut store = Store::open(folder.path(), bounds, None).expect("opened");
    let key = |n: u8| KeyId::new([n; 16]);
    let add = |store: &mut Store, id: &str, owner: u8| {
        store.add(id, (Some(key(owner)), 2), &spec(1, FileFormat::Pcm), None, 1)
    };
    for id in ["job_a0", "job_a1"] {
        add(&mut store, id, 1).expect("added");
    }
    assert!(matches!(add(&mut store, "job_a2", 1), Err(StoreError::TooManyOfKey(2))));
    add(&mut store, "job_b0", 2).expect("another key");
    // The oldest finished job is the other key's, who takes less.
    for (id, samples, now) in [("job_b0", 1_000, 2), ("job_a0", 1_900, 3)] {
        store.append(id, &vec![1; samples], now).expect("kept");
        let part = store.folder.join("x.part");
        fs::write(&part, vec![0; 2 * samples]).expect("written");
        store.finish(id, &part, now).expect("finished");
    }
    store.append("job_a1", &[1; 1_900], 4).expect("kept");
    store.append("job_a1", &[1; 500], 5).expect("kept");
    let there = ["job_b0", "job_a0", "job_a1"].map(|id| store.job(id).is_ok());
    assert_eq!(there, [true, false, true]);
    assert!(matches!(store.append("job_a1", &[1; 2_000], 6), Err(StoreError::NoRoom)));
    assert!(store.job("job_b0").is_ok());
}
