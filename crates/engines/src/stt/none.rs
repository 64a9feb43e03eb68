//! The `none` engine: a hub without a speech recognizer.
//!
//! The root's assembly uses it where `stt.engine` is "auto" and no model is on disk, or where it is "none". Typed conversations
//! work; each utterance fails with [`SttError::NoRecognizer`]. It hears nothing and loads nothing.

use antiphon_engine_api::stt::{Stt, SttError, SttOptions, SttUtterance};
use futures_util::future::{BoxFuture, ready};

/// The engine's name in settings.
pub const NAME: &str = "none";

/// See the module.
pub struct NoRecognizer;

impl Stt for NoRecognizer {
    fn name(&self) -> &str {
        NAME
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        Box::pin(ready(Err(SttError::NoRecognizer)))
    }
}
