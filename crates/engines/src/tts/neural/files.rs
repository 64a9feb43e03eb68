//! Which file `tts.model` means.

use antiphon_engine_api::tts::TtsError;
use std::path::{Path, PathBuf};

/// The `.onnx` file: the file itself, or the only one in a folder. `what` is what to name, for the error's words.
pub(in crate::tts) fn model_file(model: &str, what: &str) -> Result<PathBuf, TtsError> {
    let unavailable = |text: String| Err(TtsError::Unavailable(format!("tts.model = {model:?}: {text}")));
    let path = Path::new(model);
    if path.is_file() {
        return Ok(path.into());
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return unavailable(format!("there is no such file or folder; name {what}: its .onnx file, or its folder"));
    };
    let is_model = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "onnx") && path.is_file();
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_model).collect();
    found.sort();
    match found.len() {
        0 => unavailable(format!("there is no .onnx file in this folder; name {what}")),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
            unavailable(format!("several models are in this folder; name one of {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_file_or_the_only_one_in_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().to_str().expect("Unicode");
        let said = |model: &str| model_file(model, "a voice").expect_err("refused").to_string();
        assert!(said("no/where").contains("no such file or folder; name a voice"));
        assert!(said(name).contains("no .onnx file in this folder"));
        let first = folder.path().join("a.onnx");
        std::fs::write(&first, "").expect("written");
        assert_eq!(model_file(name, "a voice").expect("one"), first);
        assert_eq!(model_file(first.to_str().expect("Unicode"), "a voice").expect("itself"), first);
        std::fs::write(folder.path().join("b.onnx"), "").expect("written");
        assert!(said(name).contains("name one of"));
    }
}
