//! Custom voices on the disk: a folder of reference recordings, the operator's and those that clients upload.
//!
//! An engine that clones voices opens a [`VoiceStore`] and serves its `VoiceLibrary` from it: the engine computes its
//! conditioning, the store keeps recordings. Everything here blocks and is called from threads for such work. The store never
//! computes with a voice and does not know whose requests may use one (`antiphon_engine_api::tts::find_voice` does).
//!
//! In the folder, `anna.wav` is a voice of the operator; `anna.txt` may hold its words, `anna.json` its name and language:
//! `{"name": "Anna", "language": "en"}`. An upload is three files of its id. Its `.json`, which holds the consent, is written
//! last and makes the voice; without it the others are no voice. All files of uploads are readable by this user only, and
//! encrypted where there is a key; the operator's are as the operator wrote them.

mod files;
mod recording;
mod store;
#[cfg(all(test, feature = "flite"))]
mod tests;

pub use store::{AUTO, Reference, StoreSettings, VoiceStore};
