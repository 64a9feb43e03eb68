//! A text's chunks to one stream of sound, in order, some of them spoken ahead.
//!
//! The endpoint and the jobs pull it. Each chunk that has begun is a task of the server's that reads the engine into a
//! bounded channel; dropping the stream closes the channels, and with them ends all that was begun. A chunk waits for a place in
//! the engine's queue, in order, until its deadline (`waiting`). Nothing is spoken twice: a chunk is tried again only as long
//! as none of it sounded.

use super::spec::SpeechSpec;
use super::waiting::{AFTER_SOUND, BEFORE_SOUND, JOB, Retry, is_busy};
use crate::server::sessions::load::ApiRequests;
use antiphon_audio::Resampler;
use antiphon_audio::encode::RATE;
use antiphon_engine_api::tts::{Passage, PlayoutEstimate, SpeechRequest, Tts, TtsError};
use antiphon_types::{Meter, Pcm, SampleRate};
use futures_util::{Stream, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

/// Pieces of a chunk that wait for its turn. Engines make pieces of 20 ms and more; a chunk of 20 s that comes in the
/// smallest ones waits for its reader half-way.
const PIECES: usize = 512;
/// Chunks in the engine's queue, everybody's, from which on none is begun ahead: a quarter of the queue of one replica. The
/// rest is for those whose listener has nothing to hear.
const ROOM: usize = 8;

type Pieces = mpsc::Receiver<Result<Pcm, TtsError>>;

/// By what a text is spoken.
pub(super) struct SpeechSource {
    pub(super) tts: Arc<dyn Tts>,
    pub(super) tasks: TaskTracker,
    /// Chunks begun besides the one that is listened to, once that one sounds and where the engine has room.
    pub(super) ahead: usize,
    /// Whether a client listens meanwhile: engines serve first the listener that runs dry first, and a slow chunk is retried.
    /// A job tries again by itself, with the engine that serves then.
    pub(super) is_heard: bool,
    /// Whether batches of the engine do not wait for others with its chunks.
    pub(super) immediate: bool,
    /// Of all its chunks.
    pub(super) meter: Meter,
    /// Where its chunks are counted while they are spoken.
    pub(super) load: ApiRequests,
}

/// What the stream yields.
#[derive(Debug, PartialEq)]
pub(super) enum SpeechPiece {
    /// Mono at [`RATE`], never empty.
    Sound(Vec<i16>),
    /// One more chunk is complete.
    ChunkEnd,
}

impl SpeechSource {
    /// Speaks the chunks of a wish from the `from`th on. Ends with the first error.
    pub(super) fn speak(
        self,
        wish: &SpeechSpec,
        from: usize,
    ) -> impl Stream<Item = Result<SpeechPiece, TtsError>> + Send + use<> {
        let mut course = self.course(wish);
        course.waiting = wish.chunks[from.min(wish.chunks.len())..].to_vec().into();
        async_stream::stream! {
            while let Some(spoken) = course.next().await {
                let is_last = spoken.is_err();
                yield spoken;
                if is_last {
                    return;
                }
            }
        }
    }

    /// A text whose chunks are added as they come; those of the wish are not looked at.
    pub(super) fn course(self, wish: &SpeechSpec) -> Course {
        Course {
            speaking: self,
            voice: wish.voice.clone(),
            speed: wish.speed,
            instructions: wish.instructions.clone(),
            seed: wish.seed,
            passage: Passage::first(),
            waiting: VecDeque::new(),
            current: None,
            begun: VecDeque::new(),
            listener: PlayoutEstimate::default(),
            sounds: false,
        }
    }
}

/// How far a text is. Dropping it ends all that was begun.
pub(super) struct Course {
    speaking: SpeechSource,
    voice: String,
    speed: f32,
    instructions: Option<String>,
    /// Of the next chunk: each has its own.
    seed: Option<u64>,
    passage: Passage,
    /// Chunks that are not started.
    waiting: VecDeque<String>,
    /// The one that is listened to.
    current: Option<Current>,
    /// Those begun ahead.
    begun: VecDeque<Pieces>,
    listener: PlayoutEstimate,
    sounds: bool,
}

/// A chunk that is listened to.
struct Current {
    pieces: Pieces,
    /// Of this chunk: an engine may change its rate between two. `None` before its first sound and after its last.
    converted: Option<(SampleRate, Resampler)>,
}

impl Course {
    /// Adds a chunk behind the others.
    pub(super) fn add(&mut self, chunk: String) {
        self.waiting.push_back(chunk);
    }

    /// Waits for the next sound, or for the end of a chunk. `None`, at once: every chunk that was added is spoken. After an error
    /// there is nothing more to ask for. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<SpeechPiece, TtsError>> {
        loop {
            let current = match &mut self.current {
                Some(current) => current,
                None => {
                    let pieces = self.next_chunk()?;
                    self.current.insert(Current { pieces, converted: None })
                }
            };
            let mut samples = Vec::new();
            match current.pieces.recv().await {
                Some(Ok(piece)) => {
                    let (_, resampler) = match &mut current.converted {
                        Some(known) if known.0 == piece.rate => known,
                        slot => slot.insert((piece.rate, Resampler::new(piece.rate, RATE))),
                    };
                    resampler.process(&piece.samples, &mut samples);
                    self.heard(&piece);
                }
                Some(Err(error)) => return Some(Err(error)),
                None => match current.converted.take() {
                    Some((_, mut resampler)) => resampler.flush(&mut samples),
                    None => {
                        self.current = None;
                        self.listener.heard_chunk();
                        return Some(Ok(SpeechPiece::ChunkEnd));
                    }
                },
            }
            if !samples.is_empty() {
                return Some(Ok(SpeechPiece::Sound(samples)));
            }
        }
    }

    /// The chunk to listen to.
    fn next_chunk(&mut self) -> Option<Pieces> {
        self.begun.pop_front().or_else(|| self.begin())
    }

    /// Takes note of a piece, and begins what comes behind it where there is room: not before, for others wait for their first
    /// sound.
    fn heard(&mut self, piece: &Pcm) {
        self.listener.hears(piece.duration());
        self.sounds = true;
        while self.begun.len() < self.speaking.ahead && self.speaking.tts.waiting() < ROOM {
            let Some(pieces) = self.begin() else { return };
            self.begun.push_back(pieces);
        }
    }

    /// Begins the next chunk, if there is one.
    fn begin(&mut self) -> Option<Pieces> {
        let text = self.waiting.pop_front()?;
        let unplayed = self.speaking.is_heard.then(|| self.listener.unplayed());
        self.listener.will_hear(&text);
        let time = match unplayed {
            None => JOB,
            Some(unplayed) => unplayed + if self.sounds { AFTER_SOUND } else { BEFORE_SOUND },
        };
        let voice = self.voice.clone();
        let passage = Some(self.passage);
        self.passage = self.passage.following();
        let seed = self.seed;
        self.seed = seed.map(|seed| seed.wrapping_add(1));
        let instructions = self.instructions.clone();
        let speed = self.speed;
        let meter = self.speaking.meter.clone();
        let request = SpeechRequest {
            text,
            voice,
            speed,
            unplayed,
            seed,
            passage,
            instructions,
            immediate: self.speaking.immediate,
            meter,
            ..SpeechRequest::default()
        };
        let (sender, pieces) = mpsc::channel(PIECES);
        let tts = self.speaking.tts.clone();
        let counted = self.speaking.load.begin();
        self.speaking.tasks.spawn(async move {
            let _counted = counted;
            tokio::select! {
                // Whoever listened has gone.
                () = sender.closed() => {}
                () = read(&*tts, request, Retry::within(time), &sender) => {}
            }
        });
        Some(pieces)
    }
}

/// Hands over a chunk's pieces, its error the last of them.
async fn read(tts: &dyn Tts, request: SpeechRequest, mut retry: Retry, pieces: &mpsc::Sender<Result<Pcm, TtsError>>) {
    let begun = Instant::now();
    let mut has_timed_out = false;
    loop {
        let unplayed = request.unplayed.map(|unplayed| unplayed.saturating_sub(begun.elapsed()));
        let queued = tts.speak_queued(SpeechRequest { unplayed, ..request.clone() });
        let Ok(mut stream) = timeout_at(retry.deadline(), queued).await else {
            // The reader may be gone.
            let _ = pieces.send(Err(TtsError::Overloaded { waiting: tts.waiting() })).await;
            return;
        };
        let mut next = stream.next().await;
        let is_dry = request.unplayed.is_some_and(|unplayed| unplayed <= begun.elapsed());
        let is_too_slow = is_dry && matches!(next, Some(Err(TtsError::Timeout(_))));
        if let Some(Err(error)) = &next
            && request.unplayed.is_some()
            && is_busy(error)
            // Twice too long where nothing is left to hear meanwhile: the voice is too slow for this text, and would be again.
            && !(is_too_slow && has_timed_out)
        {
            drop(stream);
            has_timed_out = is_too_slow;
            if retry.pause().await {
                continue;
            }
            // Whether anybody takes it is theirs.
            let _ = pieces.send(next.expect("it was just looked at")).await;
            return;
        }
        while let Some(piece) = next {
            let is_last = piece.is_err();
            if pieces.send(piece).await.is_err() || is_last {
                return;
            }
            next = stream.next().await;
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::encode::FileFormat;
    use antiphon_engine_api::tts::Voice;
    use futures_util::future::BoxFuture;
    use futures_util::stream::{self, BoxStream};
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    /// Says each chunk as three samples of its number; a permit lets one chunk through.
    #[derive(Clone)]
    struct Counting {
        gate: Arc<Semaphore>,
        begun: Arc<AtomicUsize>,
        alive: Arc<AtomicUsize>,
        waiting: usize,
        /// So many tries of the second chunk find no place.
        n_busy: Arc<AtomicUsize>,
        /// They do not end in time instead.
        is_slow: bool,
        /// What the listeners were said to have to hear.
        unplayed: Arc<Mutex<Vec<Duration>>>,
    }

    /// How long a try takes that finds no place.
    const TRY: Duration = Duration::from_secs(10);

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

        fn voices(&self) -> Vec<Voice> {
            Vec::new()
        }

        fn waiting(&self) -> usize {
            self.waiting
        }

        fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
            let this = self.clone();
            stream::once(async move {
                this.begun.fetch_add(1, Ordering::SeqCst);
                this.alive.fetch_add(1, Ordering::SeqCst);
                let _alive = Alive(this.alive.clone());
                let n = request.text.parse().map_err(|_| TtsError::Unavailable("no number".into()))?;
                this.unplayed.lock().expect("no panic").extend(request.unplayed);
                let one_less = |n: usize| n.checked_sub(1);
                if n == 1 && this.n_busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                    tokio::time::sleep(TRY).await;
                    return Err(if this.is_slow {
                        TtsError::Timeout(TRY)
                    } else {
                        TtsError::Overloaded { waiting: 9 }
                    });
                }
                this.gate.acquire().await.expect("open").forget();
                Ok(Pcm { rate: RATE, samples: vec![n; 3] })
            })
            .boxed()
        }
    }

    fn engine(permits: usize) -> Counting {
        Counting {
            gate: Arc::new(Semaphore::new(permits)),
            begun: Arc::default(),
            alive: Arc::default(),
            waiting: 0,
            n_busy: Arc::default(),
            is_slow: false,
            unplayed: Arc::default(),
        }
    }

    fn wish(chunks: &[&str]) -> SpeechSpec {
        let chunks = chunks.iter().map(|chunk| (*chunk).to_owned()).collect();
        SpeechSpec {
            chunks,
            n_chars: 0,
            voice: "v".into(),
            speed: 1.0,
            instructions: None,
            seed: None,
            format: FileFormat::Pcm,
            as_events: false,
            model: None,
            is_own_voice: false,
        }
    }

    fn speak(
        tts: &Counting,
        chunks: &[&str],
        from: usize,
    ) -> impl Stream<Item = Result<SpeechPiece, TtsError>> + use<> {
        let speaking = SpeechSource {
            tts: Arc::new(tts.clone()),
            tasks: TaskTracker::new(),
            ahead: 1,
            is_heard: true,
            immediate: false,
            meter: Meter::default(),
            load: ApiRequests::default(),
        };
        speaking.speak(&wish(chunks), from)
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
        let expect = (1..4).flat_map(|n| [SpeechPiece::Sound(vec![n; 3]), SpeechPiece::ChunkEnd]).collect::<Vec<_>>();
        assert_eq!(all, expect);
        let tts = engine(1);
        let mut stream = pin!(speak(&tts, &["0", "1", "2", "3"], 0));
        assert_eq!(stream.next().await.expect("sound").expect("no error"), SpeechPiece::Sound(vec![0; 3]));
        settled().await;
        assert_eq!(tts.begun.load(Ordering::SeqCst), 2, "the one that is heard and one ahead");
    }

    #[tokio::test]
    async fn none_is_begun_ahead_of_those_who_wait_for_the_engine() {
        for (waiting, n_begun) in [(ROOM - 1, 2), (ROOM, 1)] {
            let tts = Counting { waiting, ..engine(1) };
            let mut stream = pin!(speak(&tts, &["0", "2", "3"], 0));
            stream.next().await.expect("sound").expect("no error");
            settled().await;
            assert_eq!(tts.begun.load(Ordering::SeqCst), n_begun, "{waiting} wait");
        }
        let tts = engine(0);
        let mut stream = pin!(speak(&tts, &["0", "2"], 0));
        assert!(futures_util::poll!(stream.next()).is_pending());
        settled().await;
        assert_eq!(tts.begun.load(Ordering::SeqCst), 1, "nor before the first sound");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_that_finds_no_place_after_a_sound_is_tried_again() {
        let tts = engine(9);
        tts.n_busy.store(3, Ordering::SeqCst);
        let all: Vec<_> = speak(&tts, &["0", "1", "2"], 0).map(|spoken| spoken.expect("no error")).collect().await;
        let expect = (0..3).flat_map(|n| [SpeechPiece::Sound(vec![n; 3]), SpeechPiece::ChunkEnd]).collect::<Vec<_>>();
        assert_eq!(all, expect);
        let unplayed = tts.unplayed.lock().expect("no panic").clone();
        assert_eq!(unplayed.len(), 6, "four attempts of the second chunk");
        assert_eq!(unplayed[2..5], [Duration::ZERO; 3], "and is urgent by then");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_place_ends_sooner_before_a_sound() {
        for (chunks, n_before) in [(&["0", "1"][..], 2), (&["1"], 0)] {
            let tts = engine(9);
            tts.n_busy.store(usize::MAX, Ordering::SeqCst);
            let began = Instant::now();
            let mut all: Vec<_> = speak(&tts, chunks, 0).collect().await;
            assert!(matches!(all.pop(), Some(Err(TtsError::Overloaded { .. }))));
            assert_eq!(all.len(), n_before);
            let most = if n_before == 0 { BEFORE_SOUND } else { AFTER_SOUND + Duration::from_secs(1) } + TRY;
            assert!((most - 2 * TRY..=most).contains(&began.elapsed()), "{:?}", began.elapsed());
        }
    }

    const CHUNK: Duration = Duration::from_millis(1_100);

    /// Speaks one chunk at a time, in [`CHUNK`]; `max_waiting` more wait in its queue, and others for room in that.
    #[derive(Clone)]
    struct Queueing {
        busy: Arc<Semaphore>,
        room: Arc<Semaphore>,
        said: Arc<Mutex<Vec<(String, Duration)>>>,
        began: Instant,
    }

    impl Queueing {
        fn new(max_waiting: usize) -> Self {
            let busy = Arc::new(Semaphore::new(1));
            let room = Arc::new(Semaphore::new(1 + max_waiting));
            Self { busy, room, said: Arc::default(), began: Instant::now() }
        }

        fn spoken(
            &self,
            request: SpeechRequest,
            place: OwnedSemaphorePermit,
        ) -> BoxStream<'static, Result<Pcm, TtsError>> {
            let this = self.clone();
            stream::once(async move {
                let _place = place;
                let _busy = this.busy.acquire().await.expect("open");
                tokio::time::sleep(CHUNK).await;
                this.said.lock().expect("no panic").push((request.text, this.began.elapsed()));
                Ok(Pcm { rate: RATE, samples: vec![7; 3] })
            })
            .boxed()
        }
    }

    impl Tts for Queueing {
        fn name(&self) -> &str {
            "queueing"
        }

        fn voices(&self) -> Vec<Voice> {
            Vec::new()
        }

        fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
            match self.room.clone().try_acquire_owned() {
                Ok(place) => self.spoken(request, place),
                Err(_) => stream::once(async { Err(TtsError::Overloaded { waiting: 1 }) }).boxed(),
            }
        }

        fn speak_queued(
            &self,
            request: SpeechRequest,
        ) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
            let this = self.clone();
            Box::pin(async move {
                let place = this.room.clone().acquire_owned().await.expect("open");
                this.spoken(request, place)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_wait_in_order_and_are_served_as_soon_as_a_place_is_free() {
        let tts = Queueing::new(1);
        let tasks = TaskTracker::new();
        for n in 0..20 {
            let speaking = SpeechSource {
                tts: Arc::new(tts.clone()),
                tasks: tasks.clone(),
                ahead: 0,
                is_heard: true,
                immediate: false,
                meter: Meter::default(),
                load: ApiRequests::default(),
            };
            let mut stream = speaking.speak(&wish(&[&n.to_string()]), 0).boxed();
            tasks.spawn(async move {
                let first = stream.next().await.expect("sound or an error");
                // Two found a place at once, and nine are spoken within the ten seconds that the others wait.
                assert_eq!(first.is_ok(), n < 11, "{n}: {first:?}");
                if let Err(error) = first {
                    assert!(matches!(error, TtsError::Overloaded { .. }), "{error:?}");
                }
            });
            settled().await;
        }
        tasks.close();
        tasks.wait().await;
        let expected: Vec<_> = (0..11).map(|n| (n.to_string(), CHUNK * (n + 1))).collect();
        let said = tts.said.lock().expect("no panic").clone();
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for ((text, at), (expected, due)) in said.iter().zip(&expected) {
            // The clock of the runtime counts in milliseconds.
            assert!(text == expected && *at < *due + Duration::from_millis(50), "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_while_it_waits_gives_its_turn_up() {
        let tts = Queueing::new(1);
        let speak = |text: &str| {
            let speaking = SpeechSource {
                tts: Arc::new(tts.clone()),
                tasks: TaskTracker::new(),
                ahead: 0,
                is_heard: true,
                immediate: false,
                meter: Meter::default(),
                load: ApiRequests::default(),
            };
            speaking.speak(&wish(&[text]), 0).boxed()
        };
        let mut streams: Vec<_> = ["0", "1", "2", "3"].map(speak).into();
        for stream in &mut streams {
            assert!(futures_util::poll!(stream.next()).is_pending());
            settled().await;
        }
        drop(streams.remove(2));
        for stream in &mut streams {
            assert!(stream.next().await.expect("sound").is_ok());
        }
        let said: Vec<_> = tts.said.lock().expect("no panic").iter().map(|(text, _)| text.clone()).collect();
        assert_eq!(said, ["0", "1", "3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_voice_that_is_too_slow_for_a_text_is_asked_for_it_twice() {
        let tts = Counting { is_slow: true, ..engine(9) };
        tts.n_busy.store(usize::MAX, Ordering::SeqCst);
        let mut all: Vec<_> = speak(&tts, &["0", "1"], 0).collect().await;
        assert!(matches!(all.pop(), Some(Err(TtsError::Timeout(_)))));
        assert_eq!(usize::MAX - tts.n_busy.load(Ordering::SeqCst), 2);
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
