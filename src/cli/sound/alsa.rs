//! What of ALSA (`libasound.so.2`) is called, opened at run time, so that a hub starts where it is absent.
//!
//! The library is opened once in a process and never closed. Used by the microphone and the loudspeaker beside it only. All calls
//! but [`Device::drop_buffer`] and [`devices`] may block for as long as the device's buffer lasts. Types and constants follow
//! `alsa/pcm.h`, `alsa/error.h` and `alsa/control.h` of alsa-lib 1.2.
#![allow(unsafe_code)]

use super::{RATE, SoundDevice, SoundError};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::Duration;

/// The library's file, of every version since 1999.
const LIBRARY: &str = "libasound.so.2";

/// `SND_PCM_STREAM_PLAYBACK` and `SND_PCM_STREAM_CAPTURE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Play = 0,
    Capture = 1,
}

/// `SND_PCM_FORMAT_S16_LE`.
const S16_LE: c_int = 2;
/// `SND_PCM_ACCESS_RW_INTERLEAVED`.
const RW_INTERLEAVED: c_int = 3;

/// `snd_pcm_t`, never looked into.
#[repr(C)]
struct Pcm {
    _opaque: [u8; 0],
}

/// `snd_lib_error_handler_t` without its variable arguments.
type ErrorHandler = extern "C" fn(*const c_char, c_int, *const c_char, c_int, *const c_char);

/// The functions. Valid as long as the library is open, which is for ever.
struct Alsa {
    open: unsafe extern "C" fn(*mut *mut Pcm, *const c_char, c_int, c_int) -> c_int,
    set_params: unsafe extern "C" fn(*mut Pcm, c_int, c_int, c_uint, c_uint, c_int, c_uint) -> c_int,
    readi: unsafe extern "C" fn(*mut Pcm, *mut c_void, c_ulong) -> c_long,
    writei: unsafe extern "C" fn(*mut Pcm, *const c_void, c_ulong) -> c_long,
    wait: unsafe extern "C" fn(*mut Pcm, c_int) -> c_int,
    recover: unsafe extern "C" fn(*mut Pcm, c_int, c_int) -> c_int,
    delay: unsafe extern "C" fn(*mut Pcm, *mut c_long) -> c_int,
    start: unsafe extern "C" fn(*mut Pcm) -> c_int,
    drop: unsafe extern "C" fn(*mut Pcm) -> c_int,
    prepare: unsafe extern "C" fn(*mut Pcm) -> c_int,
    close: unsafe extern "C" fn(*mut Pcm) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    hints: unsafe extern "C" fn(c_int, *const c_char, *mut *mut *mut c_void) -> c_int,
    hint: unsafe extern "C" fn(*const c_void, *const c_char) -> *mut c_char,
    free_hints: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
}

unsafe extern "C" {
    /// `free` of the C library, for strings that ALSA allocated.
    fn free(memory: *mut c_void);
}

/// ALSA writes its errors to stderr; callers get them as values.
extern "C" fn silent(_: *const c_char, _: c_int, _: *const c_char, _: c_int, _: *const c_char) {}

fn load() -> Result<Alsa, String> {
    // SAFETY: opening the library runs no initializer that depends on this program's state. The types of the functions are those
    // of the headers named above. The handler ignores its arguments; on Linux a function without variable arguments may be
    // called with them, since the caller clears the stack.
    unsafe {
        let library = Library::new(LIBRARY).map_err(|error| error.to_string())?;
        let library: &'static Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {
                *library.get($name).map_err(|error| error.to_string())?
            };
        }
        let handler: unsafe extern "C" fn(ErrorHandler) -> c_int = function!(b"snd_lib_error_set_handler");
        handler(silent);
        Ok(Alsa {
            open: function!(b"snd_pcm_open"),
            set_params: function!(b"snd_pcm_set_params"),
            readi: function!(b"snd_pcm_readi"),
            writei: function!(b"snd_pcm_writei"),
            wait: function!(b"snd_pcm_wait"),
            recover: function!(b"snd_pcm_recover"),
            delay: function!(b"snd_pcm_delay"),
            start: function!(b"snd_pcm_start"),
            drop: function!(b"snd_pcm_drop"),
            prepare: function!(b"snd_pcm_prepare"),
            close: function!(b"snd_pcm_close"),
            strerror: function!(b"snd_strerror"),
            hints: function!(b"snd_device_name_hint"),
            hint: function!(b"snd_device_name_get_hint"),
            free_hints: function!(b"snd_device_name_free_hint"),
        })
    }
}

fn alsa() -> Result<&'static Alsa, SoundError> {
    static ALSA: OnceLock<Result<Alsa, String>> = OnceLock::new();
    ALSA.get_or_init(load).as_ref().map_err(|why| SoundError::NoLibrary(why.clone()))
}

impl Alsa {
    fn said(&self, code: c_int) -> String {
        // SAFETY: the function returns a static string for every number.
        unsafe { CStr::from_ptr((self.strerror)(code)) }.to_string_lossy().into_owned()
    }
}

/// An open device: mono, 16 bits, [`RATE`]. Used by one thread at a time.
pub(super) struct Device {
    alsa: &'static Alsa,
    pcm: *mut Pcm,
    name: String,
    direction: Direction,
}

// SAFETY: a PCM may be used by any thread, one at a time, which `&mut self` ensures.
unsafe impl Send for Device {}

impl Device {
    /// Opens `name`, such as "default". `latency`: the length of the device's buffer.
    ///
    /// # Errors
    /// ALSA is not installed, there is no such device, another program uses it, or it refuses the rate.
    pub(super) fn open(name: &str, direction: Direction, latency: Duration) -> Result<Self, SoundError> {
        let alsa = alsa()?;
        let failed =
            |why| SoundError::Open { device: name.to_owned(), is_microphone: direction == Direction::Capture, why };
        let c_name = CString::new(name).map_err(|_| failed("the name holds a zero".into()))?;
        let mut pcm = null_mut();
        // SAFETY: the pointer and the name live until the call returns; mode 0: calls wait.
        let code = unsafe { (alsa.open)(&mut pcm, c_name.as_ptr(), direction as c_int, 0) };
        if code < 0 {
            return Err(failed(alsa.said(code)));
        }
        let mut device = Self { alsa, pcm, name: name.to_owned(), direction };
        let micros = latency.as_micros() as c_uint;
        // SAFETY: the PCM is open. 1: ALSA resamples where the device has another rate.
        let code = unsafe { (alsa.set_params)(pcm, S16_LE, RW_INTERLEAVED, 1, RATE.hz(), 1, micros) };
        if code < 0 {
            return Err(failed(format!("{} (is it a device such as \"plughw:1\"?)", alsa.said(code))));
        }
        if direction == Direction::Capture {
            device.start();
        }
        Ok(device)
    }

    /// Starts a device that does not run; one that runs already refuses, which changes nothing.
    pub(super) fn start(&mut self) {
        // SAFETY: the PCM is open.
        unsafe { (self.alsa.start)(self.pcm) };
    }

    /// Waits at most `wait` for samples; their number, 0 if there are none.
    pub(super) fn read(&mut self, samples: &mut [i16], wait: Duration) -> Result<usize, SoundError> {
        // SAFETY: the PCM is open, and has room for a mono frame in each sample.
        let n = unsafe {
            match (self.alsa.wait)(self.pcm, wait.as_millis() as c_int) {
                0 => return Ok(0),
                code if code < 0 => c_long::from(code),
                _ => (self.alsa.readi)(self.pcm, samples.as_mut_ptr().cast(), samples.len() as c_ulong),
            }
        };
        self.count(n)
    }

    /// Writes samples, waiting for room in the buffer; their number.
    pub(super) fn write(&mut self, samples: &[i16]) -> Result<usize, SoundError> {
        // SAFETY: the PCM is open, and each sample is a mono frame.
        let n = unsafe { (self.alsa.writei)(self.pcm, samples.as_ptr().cast(), samples.len() as c_ulong) };
        self.count(n)
    }

    /// A result of ALSA: after an overrun, an underrun or a suspension the device goes on, with 0.
    fn count(&mut self, n: c_long) -> Result<usize, SoundError> {
        if n >= 0 {
            return Ok(n as usize);
        }
        // SAFETY: the PCM is open; 1: nothing is printed.
        let code = unsafe { (self.alsa.recover)(self.pcm, n as c_int, 1) };
        if code < 0 {
            return Err(SoundError::Broke { device: self.name.clone(), why: self.alsa.said(code) });
        }
        if self.direction == Direction::Capture {
            self.start();
        }
        Ok(0)
    }

    /// Samples that were written and have not sounded; 0 where the device does not say, or is at its end.
    pub(super) fn unheard(&mut self) -> usize {
        let mut delay = 0;
        // SAFETY: the PCM is open, and the number lives until the call returns.
        let code = unsafe { (self.alsa.delay)(self.pcm, &mut delay) };
        if code < 0 { 0 } else { delay.max(0) as usize }
    }

    /// Discards what was written and has not sounded.
    pub(super) fn drop_buffer(&mut self) {
        // SAFETY: the PCM is open. A failure shows at the next write.
        unsafe {
            (self.alsa.drop)(self.pcm);
            (self.alsa.prepare)(self.pcm);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the PCM is open, and not used afterwards. What was not played is discarded, so that closing does not wait.
        unsafe {
            (self.alsa.drop)(self.pcm);
            (self.alsa.close)(self.pcm);
        }
    }
}

/// All devices that ALSA's configuration lists.
pub(super) fn devices() -> Result<Vec<SoundDevice>, SoundError> {
    let alsa = alsa()?;
    let mut hints = null_mut();
    // SAFETY: the pointer lives until the call returns; -1: all cards.
    let code = unsafe { (alsa.hints)(-1, c"pcm".as_ptr(), &mut hints) };
    if code < 0 {
        return Err(SoundError::List(alsa.said(code)));
    }
    let text = |hint: *mut c_void, key: &CStr| {
        // SAFETY: the hint is one of the list, and the string is freed once and not used afterwards.
        unsafe {
            let text = (alsa.hint)(hint, key.as_ptr());
            let copy = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            free(text.cast());
            copy
        }
    };
    let mut devices = Vec::new();
    for n in 0.. {
        // SAFETY: the list ends with a null pointer, and is not read behind it.
        let hint = unsafe { *hints.add(n) };
        if hint.is_null() {
            break;
        }
        let Some(name) = text(hint, c"NAME") else { continue };
        let says = text(hint, c"DESC").unwrap_or_default();
        let way = text(hint, c"IOID");
        devices.push(SoundDevice {
            name,
            description: says.replace('\n', ", "),
            is_microphone: way.as_deref() != Some("Output"),
            is_loudspeaker: way.as_deref() != Some("Input"),
        });
    }
    // SAFETY: the list is freed once and not used afterwards.
    unsafe { (alsa.free_hints)(hints) };
    Ok(devices)
}
