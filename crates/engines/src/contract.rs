//! Contracts: JSON files beside ONNX models of no fixed layout, which say what the graph is.
//!
//! The streaming turn model and the speaker model read theirs here, and check the graph against it. All errors name the
//! setting and the file.

use antiphon_inference::onnx::{Kind, Model};
use antiphon_types::SampleRate;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The largest contract, 64 KiB; one has less than one.
const MAX_BYTES: u64 = 64 * 1024;

/// Where a model's contract is: a file of the model's name beside it.
pub(crate) fn path_of(model: &Path) -> PathBuf {
    model.with_extension("json")
}

/// A contract's file.
pub(crate) struct ContractFile {
    setting: &'static str,
    path: PathBuf,
}

impl ContractFile {
    /// That of the model which `setting` names.
    pub(crate) fn of(setting: &'static str, model: &Path) -> Self {
        Self { setting, path: path_of(model) }
    }

    /// What is wrong, behind the names of the setting and the file.
    pub(crate) fn wrong(&self, why: impl Display) -> String {
        format!("{}: {}: {why}", self.setting, self.path.display())
    }

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, is larger than [`MAX_BYTES`], or is not such a contract.
    pub(crate) fn read<C: DeserializeOwned>(&self) -> Result<C, String> {
        let size = std::fs::metadata(&self.path).map_err(|error| self.wrong(error))?.len();
        if size > MAX_BYTES {
            return Err(self.wrong(format_args!("a contract has {MAX_BYTES} bytes at most, this has {size}")));
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.wrong(error))?;
        serde_json::from_str(&text).map_err(|error| self.wrong(error))
    }

    /// # Errors
    /// The contract's `sample_rate` is another than that of the audio which the hub gives.
    pub(crate) fn check_rate(&self, sample_rate: u32, rate: SampleRate) -> Result<(), String> {
        if sample_rate == rate.hz() {
            return Ok(());
        }
        Err(self.wrong(format_args!("sample_rate is {sample_rate}, the hub's audio has {}", rate.hz())))
    }

    /// The shape of an input of f32; `None` is a size that may differ.
    ///
    /// # Errors
    /// The graph has no such input.
    pub(crate) fn input<'a>(&self, model: &'a Model, name: &str) -> Result<&'a [Option<usize>], String> {
        let missing = || self.wrong(format_args!("the graph has no input {name:?}"));
        let slot = model.input(name).ok_or_else(missing)?;
        if slot.kind != Kind::F32 {
            let kind = &slot.kind;
            return Err(self.wrong(format_args!("the graph's input {name:?} is {kind:?}, it must be F32")));
        }
        Ok(&slot.shape)
    }

    /// # Errors
    /// The graph takes more than these.
    pub(crate) fn check_inputs(&self, model: &Model, names: &[&str]) -> Result<(), String> {
        match model.inputs().iter().find(|slot| !names.contains(&slot.name.as_str())) {
            Some(other) => {
                let name = &other.name;
                Err(self.wrong(format_args!("the graph also takes {name:?}, which the contract does not name")))
            }
            None => Ok(()),
        }
    }

    /// # Errors
    /// The graph does not give one of these.
    pub(crate) fn check_outputs<'a>(
        &self,
        model: &Model,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), String> {
        match names.into_iter().find(|name| model.output(name).is_none()) {
            Some(name) => Err(self.wrong(format_args!("the graph has no output {name:?}"))),
            None => Ok(()),
        }
    }
}
