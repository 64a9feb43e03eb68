//! What the assistant understands, for recognizers: the grammars and word lists in `vocabulary/`.

use antiphon_engine_api::stt::VocabularyHint;
use std::sync::{Arc, LazyLock};

/// The sentences the assistant understands; the same one each time.
pub fn vocabulary() -> Arc<VocabularyHint> {
    static HINT: LazyLock<Arc<VocabularyHint>> = LazyLock::new(|| {
        Arc::new(VocabularyHint {
            grammar: include_str!("../vocabulary/requests.grammar").into(),
            exact: include_str!("../vocabulary/exact.grammar").into(),
            words: include_str!("../vocabulary/words.txt").into(),
            pronunciations: include_str!("../vocabulary/pronunciations.txt").into(),
        })
    });
    HINT.clone()
}
