//! The C library: the few functions of espeak-ng 1.51 (`libespeak-ng.so.1`) that turn text into phonemes, opened at run
//! time so that the hub starts without it. Only the module above calls this, and under its lock: the library keeps the
//! chosen voice, its tables and half-read text in global variables. It makes no sound and opens no audio device.
//!
//! The declarations follow `speak_lib.h` of Debian's `libespeak-ng-dev` 1.51.
#![allow(unsafe_code)]

use antiphon_engine_api::tts::TtsError;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};

/// The SONAME of Debian's `libespeak-ng1`.
const SONAME: &str = "libespeak-ng.so.1";
/// How to get the library and its data.
const INSTALL: &str = "on Debian: apt-get install libespeak-ng1 espeak-ng-data";

/// `AUDIO_OUTPUT_RETRIEVAL`: no audio device.
const RETRIEVAL: c_int = 1;
/// `espeakINITIALIZE_DONT_EXIT`: missing data is an answer, not the end of the process.
const DONT_EXIT: c_int = 0x8000;
/// `espeakCHARS_UTF8`.
const UTF8: c_int = 1;
/// `espeakPHONEMES_IPA`.
const IPA: c_int = 0x02;
/// `espeakPHONEMES_TIE`, with the character to tie with in the bits above.
const TIE: c_int = 0x80;

/// `espeak_VOICE`.
#[repr(C)]
struct CVoice {
    name: *const c_char,
    languages: *const c_char,
    identifier: *const c_char,
    gender: c_uchar,
    age: c_uchar,
    variant: c_uchar,
    xx1: c_uchar,
    score: c_int,
    spare: *mut c_void,
}

/// A language a voice file speaks.
pub(super) struct Language {
    /// Its tag in lower case, such as `en-us`.
    pub(super) tag: String,
    /// The file that speaks it, such as `gmw/en-US`.
    file: CString,
    /// espeak-ng's own preference; lower is better.
    priority: u8,
}

/// The library, initialized. There is one in a process.
pub(super) struct Espeak {
    set_voice: unsafe extern "C" fn(*const c_char) -> c_int,
    to_phonemes: unsafe extern "C" fn(*mut *const c_void, c_int, c_int) -> *const c_char,
    /// All languages of the installed data.
    pub(super) languages: Vec<Language>,
    /// The tag of the voice in use.
    current: Option<String>,
}

impl Espeak {
    /// Opens and initializes the library; blocks for some 10 ms. Must not be called twice in a process.
    pub(super) fn open() -> Result<Self, TtsError> {
        let library = load(SONAME)?;
        let initialize: unsafe extern "C" fn(c_int, c_int, *const c_char, c_int) -> c_int =
            symbol(library, c"espeak_Initialize")?;
        // SAFETY: a null path means the library's own data folder.
        let rate = unsafe { initialize(RETRIEVAL, 0, std::ptr::null(), DONT_EXIT) };
        if rate <= 0 {
            return Err(TtsError::Unavailable(format!("espeak-ng's data cannot be loaded; {INSTALL}")));
        }
        let list: unsafe extern "C" fn(*mut CVoice) -> *const *const CVoice = symbol(library, c"espeak_ListVoices")?;
        // SAFETY: the library is initialized; a null argument asks for all voices.
        let languages = unsafe { languages_of(list(std::ptr::null_mut())) };
        Ok(Self {
            set_voice: symbol(library, c"espeak_SetVoiceByName")?,
            to_phonemes: symbol(library, c"espeak_TextToPhonemes")?,
            languages,
            current: None,
        })
    }

    /// Makes `tag` the language of what follows. Loads its dictionary where another one was in use.
    pub(super) fn choose(&mut self, tag: &str) -> Result<(), TtsError> {
        let tag = tag.trim().to_ascii_lowercase();
        if self.current.as_ref() == Some(&tag) {
            return Ok(());
        }
        let fitting = self.languages.iter().filter(|language| language.tag == tag);
        let Some(language) = fitting.min_by_key(|language| language.priority) else {
            let text = format!("espeak-ng has no language {tag:?}; `espeak-ng --voices` lists those it has");
            return Err(TtsError::Unavailable(text));
        };
        self.current = None;
        // SAFETY: the name ends with a zero byte; the caller's exclusive borrow keeps other threads out.
        if unsafe { (self.set_voice)(language.file.as_ptr()) } != 0 {
            let text = format!("espeak-ng cannot load its language {tag:?}; {INSTALL}");
            return Err(TtsError::Unavailable(text));
        }
        self.current = Some(tag);
        Ok(())
    }

    /// Calls `each` with the phonemes of each clause, the bytes of `text` read for it, and whether it is the last. `tie`
    /// joins the letters of one phoneme. All of the text is read in any case: what is left unread leaks into the next.
    pub(super) fn clauses(&mut self, text: &CStr, tie: Option<u8>, mut each: impl FnMut(&str, &[u8], bool)) {
        let bytes = text.to_bytes();
        let mode = IPA | tie.map_or(0, |tie| TIE | c_int::from(tie) << 8);
        let mut at = 0;
        loop {
            let mut next: *const c_void = bytes[at..].as_ptr().cast();
            // SAFETY: `next` points into the text, which ends with a zero byte and outlives the call. The answer is a
            // string in the library's own buffer, copied before the next call.
            let phonemes = unsafe {
                let made = (self.to_phonemes)(&raw mut next, UTF8, mode);
                if made.is_null() { String::new() } else { CStr::from_ptr(made).to_string_lossy().into_owned() }
            };
            let is_last = next.is_null();
            let end = if is_last { bytes.len() } else { next.addr().saturating_sub(bytes.as_ptr().addr()) };
            let end = end.clamp(at, bytes.len());
            each(&phonemes, &bytes[at..end], is_last);
            // No progress would be a loop without end.
            if is_last || end == at && phonemes.is_empty() {
                return;
            }
            at = end;
        }
    }
}

/// Opens a library for good.
fn load(soname: &str) -> Result<&'static Library, TtsError> {
    // SAFETY: espeak-ng has no initializers beyond the C runtime's.
    match unsafe { Library::new(soname) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            tracing::debug!(%error, soname, "espeak-ng cannot be opened");
            let text = format!("Piper's and Kokoro's voices need espeak-ng, but {soname} cannot be opened; {INSTALL}");
            Err(TtsError::Unavailable(text))
        }
    }
}

/// The address of `name`, as `T`.
fn symbol<T: Copy>(library: &'static Library, name: &CStr) -> Result<T, TtsError> {
    // SAFETY: the callers above give each name the type it has in speak_lib.h.
    unsafe { library.get::<T>(name.to_bytes_with_nul()) }.map(|found| *found).map_err(|_| {
        let name = name.to_string_lossy();
        TtsError::Unavailable(format!("the installed espeak-ng has no function {name}; 1.50 or newer is needed"))
    })
}

/// The languages of a list of voices that ends with a null pointer. Each voice's `languages` are a priority byte and a
/// string, again and again, up to a zero byte.
///
/// # Safety
/// `list` is what `espeak_ListVoices` gave, and nothing has called the library since.
unsafe fn languages_of(mut list: *const *const CVoice) -> Vec<Language> {
    let mut found = Vec::new();
    // SAFETY: the promise above; strings are copied.
    unsafe {
        while !list.is_null() && !(*list).is_null() {
            let voice = &**list;
            let file = CStr::from_ptr(voice.identifier).to_owned();
            let mut at = voice.languages;
            while *at != 0 {
                let priority = at.cast::<u8>().read();
                let tag = CStr::from_ptr(at.add(1));
                at = at.add(2 + tag.to_bytes().len());
                let tag = tag.to_string_lossy().to_ascii_lowercase();
                // Other synthesizers' voices (mbrola) stand in the same list and are not there.
                if !file.to_bytes().starts_with(b"mb/") {
                    found.push(Language { tag, file: file.clone(), priority });
                }
            }
            list = list.add(1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let text = load("libespeak-of-no-system.so.1").expect_err("there is no such library").to_string();
        assert!(
            text.contains("libespeak-of-no-system.so.1") && text.contains("apt-get install libespeak-ng1"),
            "{text}"
        );
    }

    #[test]
    fn another_library_is_refused_by_its_missing_function() {
        let library = load("libc.so.6").expect("the C library");
        let found = symbol::<unsafe extern "C" fn()>(library, c"espeak_Initialize");
        assert!(found.expect_err("no espeak").to_string().contains("no function espeak_Initialize"));
    }
}
