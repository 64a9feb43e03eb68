//! A text's chunks to one stream of sound, in order, some of them spoken ahead.
//!
//! The endpoint and the jobs pull it. Each chunk that has begun is a task of the server's that reads the engine into a
//! bounded channel; dropping the stream closes the channels, and with them ends all that was begun. Nothing is repeated and
//! nothing is spoken twice.

use super::request::Wish;
use crate::audio::Resampler;
use crate::audio::encode::RATE;
use crate::tts::{SpeechRequest, Tts, TtsError};
use crate::units::{Pcm, SampleRate};
use futures_util::{Stream, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Pieces of a chunk that wait for its turn. Engines make pieces of 20 ms and more; a chunk of 20 s that comes in the
/// smallest ones waits for its reader half-way.
const PIECES: usize = 512;

type Pieces = mpsc::Receiver<Result<Pcm, TtsError>>;

/// By what a text is spoken.
pub(super) struct Speaking {
    pub(super) tts: Arc<dyn Tts>,
    pub(super) tasks: TaskTracker,
    /// Chunks begun besides the one that is listened to.
    pub(super) ahead: usize,
    /// Whether somebody listens meanwhile: engines serve those first who run dry first.
    pub(super) is_heard: bool,
}

/// How long speech sounds that is not made yet, for each character of its text.
const PER_CHAR: Duration = Duration::from_millis(60);

/// Somebody who plays what comes from the first sound on.
#[derive(Default)]
struct Listener {
    since: Option<Instant>,
    made: Duration,
    /// Of chunks that are begun and not whole yet; what is made of the first of them counts twice for a moment.
    estimated: VecDeque<Duration>,
}

impl Listener {
    /// How much there is to hear before what is begun next.
    fn unplayed(&self) -> Duration {
        let played = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.made + self.estimated.iter().sum::<Duration>()).saturating_sub(played)
    }

    fn will_hear(&mut self, text: &str) {
        self.estimated.push_back(PER_CHAR * u32::try_from(text.len()).unwrap_or(u32::MAX));
    }

    fn hears(&mut self, sound: Duration) {
        self.since.get_or_insert_with(Instant::now);
        self.made += sound;
    }

    fn heard_chunk(&mut self) {
        self.estimated.pop_front();
    }
}

/// What comes out.
#[derive(Debug, PartialEq)]
pub(super) enum Spoken {
    /// Mono at [`RATE`], never empty.
    Sound(Vec<i16>),
    /// One more chunk is whole.
    ChunkEnd,
}

impl Speaking {
    /// Speaks the chunks of a wish from the `from`th on. Ends with the first error.
    pub(super) fn speak(self, wish: &Wish, from: usize) -> impl Stream<Item = Result<Spoken, TtsError>> + Send + use<> {
        let (voice, speed) = (wish.voice.clone(), wish.speed);
        let mut waiting: VecDeque<String> = wish.chunks[from.min(wish.chunks.len())..].to_vec().into();
        async_stream::stream! {
            let mut begun: VecDeque<Pieces> = VecDeque::new();
            let mut listener = Listener::default();
            loop {
                while begun.len() <= self.ahead && let Some(text) = waiting.pop_front() {
                    let unplayed = self.is_heard.then(|| listener.unplayed());
                    listener.will_hear(&text);
                    begun.push_back(self.begin(SpeechRequest { text, voice: voice.clone(), speed, unplayed }));
                }
                let Some(mut pieces) = begun.pop_front() else { return };
                // A chunk of its own each time: an engine may change its rate between two.
                let mut converted: Option<(SampleRate, Resampler)> = None;
                while let Some(piece) = pieces.recv().await {
                    let piece = match piece {
                        Ok(piece) => piece,
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    };
                    listener.hears(piece.duration());
                    let (_, resampler) = match &mut converted {
                        Some(known) if known.0 == piece.rate => known,
                        slot => slot.insert((piece.rate, Resampler::new(piece.rate, RATE))),
                    };
                    let mut samples = Vec::new();
                    resampler.process(&piece.samples, &mut samples);
                    if !samples.is_empty() {
                        yield Ok(Spoken::Sound(samples));
                    }
                }
                if let Some((_, mut resampler)) = converted {
                    let mut samples = Vec::new();
                    resampler.flush(&mut samples);
                    if !samples.is_empty() {
                        yield Ok(Spoken::Sound(samples));
                    }
                }
                listener.heard_chunk();
                yield Ok(Spoken::ChunkEnd);
            }
        }
    }

    fn begin(&self, request: SpeechRequest) -> Pieces {
        let (sender, pieces) = mpsc::channel(PIECES);
        let mut stream = self.tts.speak(request);
        self.tasks.spawn(async move {
            loop {
                let piece = tokio::select! {
                    // Whoever listened has gone.
                    () = sender.closed() => return,
                    piece = stream.next() => piece,
                };
                let Some(piece) = piece else { return };
                let is_last = piece.is_err();
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
            }
        });
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::encode::FileFormat;
    use crate::tts::Voice;
    use futures_util::stream::{self, BoxStream};
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    /// Says each chunk as three samples of its number; a permit lets one chunk through.
    #[derive(Clone)]
    struct Counting {
        gate: Arc<Semaphore>,
        begun: Arc<AtomicUsize>,
        alive: Arc<AtomicUsize>,
    }

    struct Alive(Arc<AtomicUsize>);

    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Tts for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn voices(&self) -> &[Voice] {
            &[]
        }

        fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
            let this = self.clone();
            stream::once(async move {
                this.begun.fetch_add(1, Ordering::SeqCst);
                this.alive.fetch_add(1, Ordering::SeqCst);
                let _alive = Alive(this.alive.clone());
                let n = request.text.parse().map_err(|_| TtsError::Unavailable("no number".into()))?;
                this.gate.acquire().await.expect("open").forget();
                Ok(Pcm { rate: RATE, samples: vec![n; 3] })
            })
            .boxed()
        }
    }

    fn engine(permits: usize) -> Counting {
        Counting { gate: Arc::new(Semaphore::new(permits)), begun: Arc::default(), alive: Arc::default() }
    }

    fn speak(tts: &Counting, chunks: &[&str], from: usize) -> impl Stream<Item = Result<Spoken, TtsError>> + use<> {
        let chunks = chunks.iter().map(|chunk| (*chunk).to_owned()).collect();
        let wish = Wish {
            chunks,
            n_chars: 0,
            voice: "v".into(),
            speed: 1.0,
            format: FileFormat::Pcm,
            as_events: false,
            model: None,
        };
        Speaking { tts: Arc::new(tts.clone()), tasks: TaskTracker::new(), ahead: 1, is_heard: true }.speak(&wish, from)
    }

    async fn settled() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn chunks_come_in_order_and_so_many_are_begun_ahead() {
        let tts = engine(100);
        let all: Vec<_> = speak(&tts, &["0", "1", "2", "3"], 1).map(|spoken| spoken.expect("no error")).collect().await;
        let expect = (1..4).flat_map(|n| [Spoken::Sound(vec![n; 3]), Spoken::ChunkEnd]).collect::<Vec<_>>();
        assert_eq!(all, expect);
        let tts = engine(1);
        let mut stream = pin!(speak(&tts, &["0", "1", "2", "3"], 0));
        assert_eq!(stream.next().await.expect("sound").expect("no error"), Spoken::Sound(vec![0; 3]));
        settled().await;
        assert_eq!(tts.begun.load(Ordering::SeqCst), 2, "the one that is heard and one ahead");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_still_to_be_heard_is_what_was_made_and_estimated_less_what_was_played() {
        let (ms, mut listener) = (Duration::from_millis, Listener::default());
        assert_eq!(listener.unplayed(), ms(0));
        listener.will_hear("0123456789");
        assert_eq!(listener.unplayed(), ms(600));
        listener.hears(ms(500));
        listener.heard_chunk();
        tokio::time::advance(ms(200)).await;
        assert_eq!(listener.unplayed(), ms(300));
        tokio::time::advance(ms(900)).await;
        assert_eq!(listener.unplayed(), ms(0));
    }

    #[tokio::test]
    async fn who_leaves_ends_all_that_was_begun() {
        let tts = engine(1);
        {
            let mut stream = pin!(speak(&tts, &["0", "1", "2"], 0));
            stream.next().await.expect("sound").expect("no error");
            settled().await;
            assert_eq!(tts.alive.load(Ordering::SeqCst), 1);
        }
        settled().await;
        assert_eq!(tts.alive.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_failing_chunk_ends_it_behind_what_came_before() {
        let all: Vec<_> = speak(&engine(9), &["0", "x", "2"], 0).collect().await;
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(matches!(all[2], Err(TtsError::Unavailable(_))), "{all:?}");
    }
}
