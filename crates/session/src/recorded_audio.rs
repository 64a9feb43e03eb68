//! Reads a stretch of the sound that a session's recording keeps, as `replay_recorder` writes it: the microphone left, the reply
//! right. Recordings of older hubs have the microphone alone.
//!
//! The server calls [`recorded_audio`] for one turn at a time, also while its session goes on. It never reads more than
//! [`MAX_RECORDED`], and never writes.

use super::replay_recorder::{file, part, sealed_name};
use antiphon_audio::wav;
use antiphon_types::sealed::{BlockReader, Head, OpenError, SealedError, Sealing};
use antiphon_types::{SampleRate, Samples, SessionId};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest stretch that is read at once: 3.8 MB of sound.
pub const MAX_RECORDED: Duration = Duration::from_secs(60);

const RATE: SampleRate = SampleRate::HZ_16000;
/// Where a WAV header has the number of channels.
const CHANNELS_AT: usize = 22;

/// A WAV file of the frames `span` of the session's recording in `folder`, 16 kHz, cut off behind [`MAX_RECORDED`]. What is
/// not written yet, the last 1.3 s at most, is missing at its end. `sealing` opens what is encrypted, for which the file is
/// read from its beginning. `None`: there is no such recording, or nothing in it from there on. Blocks for the length of the read.
///
/// # Errors
/// The file cannot be read, or is encrypted with another key or none that is known.
pub fn recorded_audio(
    folder: &Path,
    session: &SessionId,
    span: Range<Samples>,
    sealing: Option<Arc<dyn Sealing>>,
) -> io::Result<Option<Vec<u8>>> {
    let Some((file, is_sealed)) = open(folder, session)? else { return Ok(None) };
    let n = span.end.saturating_sub(span.start).min(Samples::from_ms(MAX_RECORDED.as_millis() as u64, RATE));
    let frames = span.start..span.start + n;
    let read = match is_sealed {
        false => read_frames(file, skip_plain, frames),
        true => {
            opened(file, &sealed_name(session, "wav"), sealing).and_then(|file| read_frames(file, skip_sealed, frames))
        }
    };
    let Frames { channels, mut pcm } = match read {
        // The session goes on: its file has no header yet.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let frame_bytes = 2 * usize::from(channels);
    pcm.truncate(pcm.len() / frame_bytes * frame_bytes);
    if pcm.is_empty() {
        return Ok(None);
    }
    let n_frames = pcm.len() / frame_bytes;
    let mut sound = wav::header_of(channels, RATE, Some(Samples(n_frames as u64))).to_vec();
    sound.append(&mut pcm);
    Ok(Some(sound))
}

/// Frames of a recording, as bytes.
struct Frames {
    channels: u16,
    pcm: Vec<u8>,
}

/// Reads these frames of a WAV file, as far as it goes. `skip` passes over bytes.
fn read_frames<R: Read>(
    mut file: R,
    skip: fn(&mut R, u64) -> io::Result<()>,
    frames: Range<Samples>,
) -> io::Result<Frames> {
    let mut header = [0; wav::HEADER_LEN];
    read_exact(&mut file, &mut header)?;
    let channels = u16::from_le_bytes([header[CHANNELS_AT], header[CHANNELS_AT + 1]]).max(1);
    let frame_bytes = 2 * u64::from(channels);
    let mut pcm = Vec::new();
    let n_bytes = frame_bytes * (frames.end - frames.start).0;
    let read = skip(&mut file, frame_bytes * frames.start.0).and_then(|()| file.take(n_bytes).read_to_end(&mut pcm));
    match read {
        // The session goes on: its file ends anywhere.
        Err(error) if !is_cut_short(&error) => Err(error),
        _ => Ok(Frames { channels, pcm }),
    }
}

/// As [`Read::read_exact`], whose error a file that ends within a block is, too.
fn read_exact(file: &mut impl Read, to: &mut [u8]) -> io::Result<()> {
    file.read_exact(to).map_err(|error| if is_cut_short(&error) { ErrorKind::UnexpectedEof.into() } else { error })
}

fn skip_plain(file: &mut File, n_bytes: u64) -> io::Result<()> {
    file.seek_relative(i64::try_from(n_bytes).map_err(io::Error::other)?)
}

fn skip_sealed(file: &mut impl Read, n_bytes: u64) -> io::Result<()> {
    io::copy(&mut file.take(n_bytes), &mut io::sink()).map(drop)
}

/// The file, and whether it is sealed; complete, or still being written. A key may have come or gone since.
fn open(folder: &Path, session: &SessionId) -> io::Result<Option<(File, bool)>> {
    for is_sealed in [false, true] {
        let path = folder.join(file(session, "wav", is_sealed));
        // A session that ends renames its file: looked for twice, it is found before or after.
        for path in [&path, &part(&path), &path] {
            match File::open(path) {
                Ok(file) => return Ok(Some((file, is_sealed))),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// The content of the file that was sealed under this name: another session's, exchanged with it, has another one.
fn opened(file: File, name: &str, sealing: Option<Arc<dyn Sealing>>) -> io::Result<BlockReader<BufReader<File>>> {
    let sealing = sealing.ok_or_else(|| io::Error::other("the recording is encrypted, and the hub has no key"))?;
    let mut file = BufReader::new(file);
    let head = Head::read_from(&mut file)?.ok_or_else(|| io::Error::other("the recording has no head"))?;
    if head.name != name {
        return Err(io::Error::other("the recording is another session's"));
    }
    Ok(BlockReader::new(file, sealing, head.name))
}

fn is_cut_short(error: &io::Error) -> bool {
    let sealed = error.get_ref().and_then(|inner| inner.downcast_ref::<SealedError>());
    sealed.is_some_and(|error| error.why == OpenError::CutShort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::sealed::{Form, seal_block};

    /// Hides nothing; bound to the name, as a cipher is.
    #[derive(Debug)]
    struct Open;

    impl Sealing for Open {
        fn seal(&self, name: &str, plain: &[u8]) -> Vec<u8> {
            [&[name.len() as u8], plain].concat()
        }

        fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
            let (first, plain) = sealed.split_first().ok_or(OpenError::Changed)?;
            (usize::from(*first) == name.len()).then(|| plain.to_vec()).ok_or(OpenError::Changed)
        }

        fn overhead(&self) -> usize {
            1
        }
    }

    /// The samples 0, 1, 2 and so on, up to two minutes.
    fn recording(n: usize) -> Vec<u8> {
        let samples = (0..n).flat_map(|i| (i as i16).to_le_bytes());
        wav::header(RATE, None).into_iter().chain(samples).collect()
    }

    fn sealed(plain: &[u8], is_complete: bool) -> Vec<u8> {
        sealed_as("recording/sess_1.wav", plain, is_complete)
    }

    fn sealed_as(name: &str, plain: &[u8], is_complete: bool) -> Vec<u8> {
        let mut bytes = Head::new(Form::Blocks, name.into()).line();
        for (number, block) in (0..).zip(plain.chunks(1_000)) {
            bytes.append(&mut seal_block(&Open, name, number, false, block));
        }
        if is_complete {
            bytes.append(&mut seal_block(&Open, name, plain.len().div_ceil(1_000) as u64, true, &[]));
        }
        bytes
    }

    /// The same with a reply that is the negative of the microphone's.
    fn two_sided(n: usize) -> Vec<u8> {
        let frames = (0..n).flat_map(|i| [i as i16, -(i as i16)]).flat_map(i16::to_le_bytes);
        wav::header_of(2, RATE, None).into_iter().chain(frames).collect()
    }

    /// The samples of a WAV file with one channel.
    fn samples(sound: &[u8]) -> Vec<i16> {
        assert_eq!(sound[..wav::HEADER_LEN], wav::header(RATE, Some(Samples((sound.len() as u64 - 44) / 2))));
        sound[wav::HEADER_LEN..].chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn a_stretch_is_read_from_every_form_of_the_file() {
        let plain = recording(20_000);
        let forms = [
            ("sess_1.wav", plain.clone()),
            ("sess_1.wav.part", plain.clone()),
            ("sess_1.wav.sealed", sealed(&plain, true)),
            ("sess_1.wav.sealed.part", sealed(&plain, false)),
        ];
        for (name, bytes) in forms {
            let folder = tempfile::tempdir().unwrap();
            let read = |from, to| {
                let span = Samples(from)..Samples(to);
                recorded_audio(folder.path(), &"sess_1".into(), span, Some(Arc::new(Open)))
            };
            assert_eq!(read(0, 10).unwrap(), None, "there is no file");
            std::fs::write(folder.path().join(name), &bytes).unwrap();
            let sound = read(16_000, 16_004).unwrap().expect(name);
            assert_eq!(samples(&sound), [16_000, 16_001, 16_002, 16_003], "{name}");
            assert_eq!(samples(&read(19_998, 30_000).unwrap().expect(name)), [19_998, 19_999], "{name}");
            assert_eq!(read(20_000, 30_000).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn both_sides_are_read() {
        let plain = two_sided(20_000);
        let forms = [("sess_1.wav", plain.clone()), ("sess_1.wav.sealed", sealed(&plain, true))];
        for (name, bytes) in forms {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(name), &bytes).unwrap();
            let span = Samples(100)..Samples(102);
            let sound =
                recorded_audio(folder.path(), &"sess_1".into(), span, Some(Arc::new(Open))).unwrap().expect(name);
            let frames = [100i16, -100, 101, -101].into_iter().flat_map(i16::to_le_bytes);
            let wanted: Vec<u8> = wav::header_of(2, RATE, Some(Samples(2))).into_iter().chain(frames).collect();
            assert_eq!(sound, wanted, "{name}");
        }
    }

    #[test]
    fn it_is_bounded_and_needs_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let read = |sealing| recorded_audio(folder.path(), &"sess_1".into(), Samples(0)..Samples(u64::MAX), sealing);
        std::fs::write(folder.path().join("sess_1.wav.sealed"), sealed(&recording(100), true)).unwrap();
        assert!(read(None).unwrap_err().to_string().contains("has no key"));
        let exchanged = |bytes: Vec<u8>| {
            std::fs::write(folder.path().join("sess_1.wav.sealed"), bytes).unwrap();
            read(Some(Arc::new(Open))).unwrap_err().to_string()
        };
        // Another session's file under this one's name, as it is and with this one's head.
        let other = sealed_as("recording/sess_other.wav", &recording(100), true);
        let at = other.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let head = Head::new(Form::Blocks, "recording/sess_1.wav".into()).line();
        assert!(exchanged([&head, &other[at..]].concat()).contains("it was changed"));
        assert!(exchanged(other).contains("another session's"));
        std::fs::remove_file(folder.path().join("sess_1.wav.sealed")).unwrap();
        std::fs::write(folder.path().join("sess_1.wav"), recording(16_000 * 61)).unwrap();
        assert_eq!(samples(&read(None).unwrap().unwrap()).len(), 16_000 * 60);
    }
}
