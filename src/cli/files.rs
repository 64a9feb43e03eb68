//! Reads sound files and writes WAV files for the commands.

use super::{CliError, print};
use antiphon_audio::decode::Decoder;
use antiphon_audio::wav;
use antiphon_types::{Pcm, SampleRate};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Maximum duration of an input file: one hour at 16 kHz takes 115 MB in memory.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Reads a sound file in any format that the transcription API reads, at any rate, as mono at `rate`. Blocks; `-` is stdin.
pub fn speech(path: &Path, rate: SampleRate) -> Result<Pcm, CliError> {
    let file = if path == Path::new("-") {
        let mut file = Vec::new();
        io::stdin().lock().read_to_end(&mut file).map(|_| file)
    } else {
        std::fs::read(path)
    };
    let file = file.map_err(|error| CliError::file("read", path, &error))?;
    let unreadable = |error| CliError::Failed(format!("{}: {error}", path.display()));
    let mut samples = Vec::new();
    let mut decoder = Decoder::open(file.into(), rate, LONGEST).map_err(unreadable)?;
    while decoder.next(&mut samples).map_err(unreadable)? {}
    Ok(Pcm { rate, samples })
}

/// Writes a mono 16-bit WAV file. Blocks; `-` is stdout.
pub fn write(path: &Path, pcm: &Pcm) -> Result<(), CliError> {
    let file = wav::write(pcm);
    if path == Path::new("-") {
        return print::bytes(&file);
    }
    std::fs::write(path, file).map_err(|error| CliError::file("written", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_no_wav_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.wav");
        let pcm = Pcm { rate: SampleRate::HZ_16000, samples: vec![0, 1_000, -1_000, 5] };
        write(&path, &pcm).expect("written");
        assert_eq!(speech(&path, SampleRate::HZ_16000).expect("read"), pcm);
        std::fs::write(&path, "no audio at all").expect("written");
        let said = speech(&path, SampleRate::HZ_16000).expect_err("refused").to_string();
        assert!(said.contains("a.wav: this is no sound file that can be read here"), "{said}");
        let said = speech(Path::new("nowhere.wav"), SampleRate::HZ_16000).expect_err("refused").to_string();
        assert!(said.starts_with("nowhere.wav: cannot be read"), "{said}");
    }
}
