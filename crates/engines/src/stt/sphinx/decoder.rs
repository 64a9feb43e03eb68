//! One PocketSphinx decoder behind safe methods: settings in, PCM in, words with their scores out. Only `stream` calls
//! it. It chooses nothing and cleans no text. No state of an utterance reaches the next one.
#![allow(unsafe_code)]

use super::library::{Api, CmdLn, Cmn, PsDecoder, PsSeg};
use antiphon_engine_api::stt::SttError;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};

/// Coefficients of a cepstral vector (`-ceplen`, 13 in the en-us model).
const N_CEPSTRA: usize = 13;

/// A cepstral vector.
pub(super) type Cepstra = [f32; N_CEPSTRA];

/// A decoder of its own: PocketSphinx shares nothing but mapped model files between decoders.
pub(super) struct Decoder {
    api: &'static Api,
    ps: NonNull<PsDecoder>,
    in_utterance: bool,
}

// SAFETY: a decoder holds no thread-local state and is used by its owner only, through `&mut self`.
unsafe impl Send for Decoder {}

/// One word of a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word {
    /// As the dictionary writes it, `(2)` for its second pronunciation.
    pub(super) text: String,
    /// Log likelihood of the sound, in PocketSphinx's units (base 1.0001, shifted).
    pub(super) acoustic: i32,
    /// Log probability of the word in its place, weighted.
    pub(super) language: i32,
    /// How long it lasts, in frames of 10 ms.
    pub(super) n_frames: i32,
}

impl Decoder {
    /// Loads a decoder with these settings, names with their dash. Blocks for some hundred milliseconds.
    pub(super) fn new(api: &'static Api, settings: &[(&str, &str)]) -> Result<Self, SttError> {
        let strings = settings.iter().flat_map(|(name, value)| [*name, *value]).map(c_string);
        let strings = strings.collect::<Result<Vec<_>, _>>()?;
        let mut arguments: Vec<*mut c_char> = strings.iter().map(|text| text.as_ptr().cast_mut()).collect();
        let n_arguments = i32::try_from(arguments.len()).expect("a few dozen settings");
        // SAFETY: the array and its strings outlive the call, which copies them; the table is the library's own. A null
        // log, which is a setting of each thread, keeps the list of settings off the standard error.
        let config = unsafe {
            (api.err_set_logfp)(ptr::null_mut());
            (api.cmd_ln_parse_r)(ptr::null_mut::<CmdLn>(), (api.ps_args)(), n_arguments, arguments.as_mut_ptr(), 1)
        };
        if config.is_null() {
            return Err(failure("it refused its settings"));
        }
        // SAFETY: `config` is valid; the decoder takes a reference of its own, so that ours is given back.
        let ps = unsafe {
            let ps = (api.ps_init)(config);
            (api.cmd_ln_free_r)(config);
            ps
        };
        let ps = NonNull::new(ps).ok_or_else(|| failure("it could not load its model"))?;
        let mut decoder = Self { api, ps, in_utterance: false };
        decoder.cmn()?;
        Ok(decoder)
    }

    /// Begins an utterance, whatever state the last one left: noise estimate, cepstral mean and search start anew. The
    /// mean begins as `prior`, which counts as `n_frames` frames of 10 ms when the utterance's own are added.
    pub(super) fn begin(&mut self, prior: &Cepstra, n_frames: u16) -> Result<(), SttError> {
        self.end()?;
        let cmn = self.cmn()?;
        // SAFETY: `cmn` checked that the vectors have N_CEPSTRA places, and nothing else uses them meanwhile.
        let status = unsafe {
            for (i, value) in prior.iter().enumerate() {
                *(*cmn).mean.add(i) = *value;
                *(*cmn).sum.add(i) = *value * f32::from(n_frames);
            }
            (*cmn).n_frames = i32::from(n_frames);
            match (self.api.ps_start_stream)(self.ps.as_ptr()) {
                0 => (self.api.ps_start_utt)(self.ps.as_ptr()),
                status => status,
            }
        };
        self.check(status, "it could not begin an utterance")?;
        self.in_utterance = true;
        Ok(())
    }

    /// Takes the mean of the prior and all frames so far from the next frames. PocketSphinx itself would go on with the
    /// prior for 8 s.
    pub(super) fn adapt(&mut self) -> Result<(), SttError> {
        let mean = self.mean()?;
        let cmn = self.cmn()?;
        for (i, value) in mean.iter().enumerate() {
            // SAFETY: `cmn` checked that the vector has N_CEPSTRA places.
            unsafe { *(*cmn).mean.add(i) = *value };
        }
        Ok(())
    }

    /// The cepstral mean of the prior and all frames so far.
    pub(super) fn mean(&mut self) -> Result<Cepstra, SttError> {
        let cmn = self.cmn()?;
        // SAFETY: `cmn` checked that the vector has N_CEPSTRA places.
        unsafe {
            let n_frames = (*cmn).n_frames.max(1) as f32;
            Ok(std::array::from_fn(|i| *(*cmn).sum.add(i) / n_frames))
        }
    }

    /// Decodes the next mono PCM at 16 kHz. Blocks meanwhile, about a tenth of the audio's length.
    pub(super) fn push(&mut self, pcm: &[i16]) -> Result<(), SttError> {
        // SAFETY: pointer and length are those of one slice.
        let n = unsafe { (self.api.ps_process_raw)(self.ps.as_ptr(), pcm.as_ptr(), pcm.len(), 0, 0) };
        self.check(n.min(0), "it could not decode")
    }

    /// Decodes what is left and ends the utterance. Nothing to do between utterances.
    pub(super) fn end(&mut self) -> Result<(), SttError> {
        if !std::mem::take(&mut self.in_utterance) {
            return Ok(());
        }
        // SAFETY: the decoder is valid and in an utterance.
        let status = unsafe { (self.api.ps_end_utt)(self.ps.as_ptr()) };
        self.check(status, "it could not end an utterance")
    }

    /// The words of the best path so far, or of the final one after `end`, fillers such as `<sil>` among them.
    pub(super) fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        // SAFETY: the iterator is valid until it is null, and is freed by the library then.
        unsafe {
            let mut segment = (self.api.ps_seg_iter)(self.ps.as_ptr());
            while !segment.is_null() {
                words.push(self.word(segment));
                segment = (self.api.ps_seg_next)(segment);
            }
        }
        words
    }

    /// SAFETY: `segment` is a valid iterator.
    unsafe fn word(&self, segment: *mut PsSeg) -> Word {
        let (mut acoustic, mut language, mut back_off) = (0, 0, 0);
        let (mut first, mut last) = (0, 0);
        // SAFETY: the results are valid places; the word is a valid string until the iterator moves on.
        let text = unsafe {
            (self.api.ps_seg_frames)(segment, &mut first, &mut last);
            (self.api.ps_seg_prob)(segment, &mut acoustic, &mut language, &mut back_off);
            CStr::from_ptr((self.api.ps_seg_word)(segment)).to_string_lossy().into_owned()
        };
        Word { text, acoustic, language, n_frames: last - first + 1 }
    }

    /// The cepstral mean's structure, once its vector length is known to be ours.
    fn cmn(&mut self) -> Result<*mut Cmn, SttError> {
        // SAFETY: the decoder is valid; the layout is that of the SONAME that `library` opens.
        unsafe {
            let features = (self.api.ps_get_feat)(self.ps.as_ptr());
            let cmn = if features.is_null() { ptr::null_mut() } else { (*features).cmn_struct };
            match cmn.as_ref() {
                Some(found) if usize::try_from(found.veclen) == Ok(N_CEPSTRA) => Ok(cmn),
                _ => Err(failure("its acoustic model has other features than expected")),
            }
        }
    }

    fn check(&self, status: c_int, what: &str) -> Result<(), SttError> {
        if status < 0 { Err(failure(what)) } else { Ok(()) }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: this is the one reference to the decoder.
        unsafe { (self.api.ps_free)(self.ps.as_ptr()) };
    }
}

fn failure(what: &str) -> SttError {
    SttError::Engine { message: format!("PocketSphinx: {what}"), source: None }
}

fn c_string(text: &str) -> Result<CString, SttError> {
    CString::new(text).map_err(|_| failure("a setting holds a zero byte"))
}
