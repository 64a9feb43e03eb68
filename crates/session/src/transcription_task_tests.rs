//! Idle utterances release their decoder.

use super::*;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engines::stt::SttStream;
use antiphon_engines::stt::local::Local;
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_silent_gives_its_decoder_back_and_loses_no_word() {
    let stt = FakeStt::default().with_decoders(1);
    let (reports, mut inbox) = mpsc::channel(4);
    let transcription = |item: &str| {
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let stt = Arc::new(stt.clone());
        let options = SttOptions::default();
        let item = item.into();
        let timeout = Duration::from_secs(5);
        let reports = reports.clone();
        let backlog = VecDeque::new();
        (
            sender,
            TranscriptionTask { item, stt, options, timeout, input, backlog, due: None, n_replayed: 0, reports }.run(),
        )
    };
    let ((silent, first), (brisk, second)) = (transcription("silent"), transcription("brisk"));
    let story = async {
        silent.send(TranscriptionInput::Pcm(vec![0; 1_000])).await.expect("it is heard");
        tokio::task::yield_now().await;
        assert_eq!(stt.decoders.available_permits(), 0, "the first has the decoder");
        brisk.send(TranscriptionInput::Pcm(vec![0; 300])).await.expect("it is heard");
        brisk.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
        let words = finished(&mut inbox).await;
        assert_eq!(words, "brisk: utterance of 300 samples", "while the first says nothing");
        silent.send(TranscriptionInput::Pcm(vec![0; 500])).await.expect("it is heard");
        tokio::time::sleep(2 * IDLE_INPUT).await;
        assert_eq!(stt.decoders.available_permits(), 1, "it is silent again");
        silent.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
        assert_eq!(finished(&mut inbox).await, "silent: utterance of 1500 samples", "all of it, replayed");
    };
    let heard = tokio::time::timeout(Duration::from_secs(600), async { tokio::join!(first, second, story) });
    heard.await.expect("nobody waits for ever");
}

async fn finished(inbox: &mut mpsc::Receiver<Report>) -> String {
    loop {
        if let Report::Final { item, result, .. } = inbox.recv().await.expect("it reports") {
            return format!("{item}: {}", result.expect("it is understood").text);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn from_the_end_on_the_wait_for_a_decoder_counts_and_before_it_it_may_take_longer() {
    for (spoken_for, outcome) in [
        (0, "final: the speech recognizer gave no answer within 5s (stt.timeout_ms)"),
        (12, "final: utterance of 16000 samples"),
    ] {
        let stt = FakeStt::default().with_decoders(0);
        let (reports, mut inbox) = mpsc::channel(8);
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let story = async {
            sender.send(TranscriptionInput::Pcm(vec![0; 16_000])).await.expect("it is heard");
            tokio::time::sleep(Duration::from_secs(spoken_for)).await;
            let ended = Instant::now();
            sender.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
            if spoken_for > 0 {
                stt.decoders.add_permits(1);
            }
            ended
        };
        let (ended, ()) = tokio::join!(story, transcription_task(Arc::new(stt.clone()), input, reports).run());
        // A second that was not taken yet has two more.
        let waited = if spoken_for > 0 { Duration::ZERO } else { Duration::from_secs(5 + 2) };
        assert_eq!(ended.elapsed(), waited);
        assert_eq!(drained(&mut inbox), [outcome]);
    }
}

fn said(text: &str) -> Transcript {
    Transcript { text: text.into(), ..Transcript::default() }
}

/// A local engine that ends nothing by itself but the whole, unless it is cancelled: no partial transcript, and no provisional
/// transcript at a pause after [`Stubborn::HANGS`]. A provisional transcript after [`Stubborn::FAILS`] fails.
#[derive(Default)]
struct Stubborn {
    last: i16,
}

impl Stubborn {
    const HANGS: i16 = 1;
    const FAILS: i16 = 2;

    fn until_cancelled(cancel: &CancellationToken) -> Result<Transcript, SttError> {
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Err(SttError::Cancelled)
    }
}

impl SttStream for Stubborn {
    fn begin(&mut self, _: &SttOptions) -> Result<(), SttError> {
        Ok(())
    }

    fn push(&mut self, pcm: &[i16], _: &CancellationToken) -> Result<(), SttError> {
        self.last = pcm.last().copied().unwrap_or(self.last);
        Ok(())
    }

    fn partial(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        match self.last {
            Self::FAILS => Err(SttError::Engine { message: "on purpose".into(), source: None }),
            _ => Self::until_cancelled(cancel),
        }
    }

    fn provisional(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        match self.last {
            Self::HANGS => Self::until_cancelled(cancel),
            Self::FAILS => Err(SttError::Engine { message: "on purpose".into(), source: None }),
            _ => Ok(said("provisional")),
        }
    }

    fn finish(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(said("finished"))
    }
}

async fn reported_by_stubborn(inputs: Vec<TranscriptionInput>) -> Vec<String> {
    let engine = Local::start("stubborn", 1, |_| Ok(Stubborn::default())).expect("it starts");
    reported_by(Arc::new(engine), inputs).await
}

#[tokio::test]
async fn a_partial_that_takes_long_does_not_delay_a_provisional_transcript_or_the_end() {
    let speech = || TranscriptionInput::Pcm(vec![0; 17_000]);
    let to_the_end = vec![
        speech(),
        TranscriptionInput::RequestPartial,
        speech(),
        TranscriptionInput::Finish { confirms_provisional: false },
    ];
    assert_eq!(reported_by_stubborn(to_the_end).await, ["final: finished"]);
    let provisional = vec![
        speech(),
        TranscriptionInput::RequestPartial,
        TranscriptionInput::RequestProvisional,
        TranscriptionInput::Finish { confirms_provisional: true },
    ];
    assert_eq!(reported_by_stubborn(provisional).await, ["provisional: provisional", "final: provisional", "learnt"]);
}

#[tokio::test]
async fn a_provisional_transcript_that_the_speaker_overtakes_or_that_fails_does_not_keep_the_end_from_its_words() {
    let hangs = TranscriptionInput::Pcm(vec![Stubborn::HANGS; 100]);
    let fails = TranscriptionInput::Pcm(vec![Stubborn::FAILS; 100]);
    let engine = Arc::new(Local::start("stubborn", 1, |_| Ok(Stubborn::default())).expect("it starts"));
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let story = async {
        for input in [hangs, TranscriptionInput::RequestProvisional] {
            sender.send(input).await.expect("it is heard");
        }
        // The provisional transcript is under way when the speaker goes on.
        while sender.capacity() < INPUT_PIECES {
            tokio::task::yield_now().await;
        }
        for input in [
            TranscriptionInput::Resumed,
            TranscriptionInput::Pcm(vec![0; 100]),
            TranscriptionInput::Finish { confirms_provisional: false },
        ] {
            sender.send(input).await.expect("it is heard");
        }
    };
    tokio::join!(story, transcription_task(engine, input, reports).run());
    assert_eq!(drained(&mut inbox), ["final: finished"]);
    let failed =
        vec![fails, TranscriptionInput::RequestProvisional, TranscriptionInput::Finish { confirms_provisional: true }];
    assert_eq!(reported_by_stubborn(failed).await, ["final: finished"]);
}

#[tokio::test]
async fn words_so_far_that_fail_are_none_and_the_end_has_its_own() {
    let engine = Arc::new(Local::start("stubborn", 1, |_| Ok(Stubborn::default())).expect("it starts"));
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let story = async {
        // One after the other: what waits would overtake the question.
        for input in [
            TranscriptionInput::Pcm(vec![Stubborn::FAILS; 100]),
            TranscriptionInput::RequestPartial,
            TranscriptionInput::Pcm(vec![0; 100]),
        ] {
            sender.send(input).await.expect("it is heard");
            while sender.capacity() < INPUT_PIECES {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sender.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
    };
    tokio::join!(story, transcription_task(engine, input, reports).run());
    assert_eq!(drained(&mut inbox), ["final: finished"]);
}

fn transcription_task(
    stt: Arc<dyn Stt>,
    input: mpsc::Receiver<TranscriptionInput>,
    reports: mpsc::Sender<Report>,
) -> TranscriptionTask {
    let timeout = Duration::from_secs(5);
    let backlog = VecDeque::new();
    TranscriptionTask {
        item: "item".into(),
        stt,
        options: SttOptions::default(),
        timeout,
        input,
        backlog,
        due: None,
        n_replayed: 0,
        reports,
    }
}

/// The reports for these inputs, after which the queue is closed.
async fn reported(inputs: Vec<TranscriptionInput>) -> Vec<String> {
    reported_by(Arc::new(FakeStt::default().provisional_after(Duration::from_millis(100))), inputs).await
}

async fn reported_by(stt: Arc<dyn Stt>, inputs: Vec<TranscriptionInput>) -> Vec<String> {
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    for input in inputs {
        assert!(sender.try_send(input).is_ok(), "there is room");
    }
    drop(sender);
    transcription_task(stt, input, reports).run().await;
    drained(&mut inbox)
}

fn drained(inbox: &mut mpsc::Receiver<Report>) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(report) = inbox.try_recv() {
        all.extend(match report {
            Report::ProvisionalTranscript { text, .. } => Some(format!("provisional: {text}")),
            Report::Final { result, .. } => Some(match result {
                Ok(transcript) => format!("final: {}", transcript.text),
                Err(error) => format!("final: {error}"),
            }),
            Report::Learnt(..) => Some("learnt".into()),
            _ => None,
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_provisional_transcript_under_way_when_the_utterance_ends_is_waited_for_and_one_that_was_wrong_is_not() {
    let pcm = || TranscriptionInput::Pcm(vec![0; 100]);
    let right = vec![
        pcm(),
        TranscriptionInput::RequestProvisional,
        pcm(),
        TranscriptionInput::Finish { confirms_provisional: true },
    ];
    let first = "utterance of 100 samples";
    assert_eq!(reported(right).await, [format!("provisional: {first}"), format!("final: {first}"), "learnt".into()]);
    let wrong = vec![
        pcm(),
        TranscriptionInput::RequestProvisional,
        TranscriptionInput::Resumed,
        pcm(),
        TranscriptionInput::Finish { confirms_provisional: false },
    ];
    assert_eq!(reported(wrong).await, ["final: utterance of 200 samples"]);
}

#[tokio::test]
async fn the_final_transcript_comes_with_the_worker_that_made_it() {
    for confirms_provisional in [false, true] {
        let stt = FakeStt::default().served_by("north", Duration::from_millis(2)).retried(1);
        let (reports, mut inbox) = mpsc::channel(8);
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        for input in [
            TranscriptionInput::Pcm(vec![0; 1_000]),
            TranscriptionInput::RequestProvisional,
            TranscriptionInput::Finish { confirms_provisional },
        ] {
            sender.send(input).await.expect("it is heard");
        }
        let mut task = transcription_task(Arc::new(stt), input, reports);
        task.options.hop = antiphon_engine_api::Hop::requested();
        task.run().await;
        let served = loop {
            if let Report::Final { served, .. } = inbox.recv().await.expect("it reports") {
                break served.expect("a worker");
            }
        };
        assert_eq!((served.worker.as_str(), served.network, served.retried), ("north", Duration::from_millis(2), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn words_are_asked_for_often_until_there_are_some() {
    let engine = FakeStt::default().with_partials().wordless_before(6_400);
    let (reports, _inbox) = mpsc::channel(64);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let story = async {
        for _ in 0..50 {
            sender.send(TranscriptionInput::Pcm(vec![0; 320])).await.expect("it is heard");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sender.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
    };
    tokio::join!(story, transcription_task(Arc::new(engine.clone()), input, reports).run());
    let asked_at_ms: Vec<_> = engine.partial_requests().iter().map(|n_samples| n_samples / 16).collect();
    assert_eq!(asked_at_ms, [40, 80, 120, 160, 200, 240, 280, 320, 360, 400, 660, 920]);
}

/// Takes 100 ms for words so far, and no time for others.
fn with_late_partials() -> Arc<FakeStt> {
    Arc::new(FakeStt::default().with_partials_after(Duration::from_millis(100)))
}

/// How long the last input's transcript takes, where the inputs come 40 ms apart, and the partial transcripts before it.
async fn after_the_last(inputs: Vec<TranscriptionInput>) -> (Duration, usize) {
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let story = async move {
        for input in inputs {
            tokio::time::sleep(Duration::from_millis(40)).await;
            sender.send(input).await.expect("it is heard");
        }
        let asked = Instant::now();
        let mut n_partials = 0;
        loop {
            match inbox.recv().await.expect("it reports") {
                Report::Partial { .. } => n_partials += 1,
                Report::ProvisionalTranscript { .. } | Report::Final { .. } => return (asked.elapsed(), n_partials),
                _ => {}
            }
        }
    };
    let task = transcription_task(with_late_partials(), input, reports).run();
    let (result, ()) = tokio::join!(story, task);
    result
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_lull_is_not_decoded_and_belongs_to_the_utterance() {
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let silence = || TranscriptionInput::Pcm(vec![0; 320]);
    let story = async move {
        for input in [silence(), TranscriptionInput::Lull, silence(), TranscriptionInput::RequestProvisional, silence()]
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send(input).await.expect("it is heard");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        sender.send(TranscriptionInput::Resumed).await.expect("it is heard");
        sender.send(TranscriptionInput::Finish { confirms_provisional: false }).await.expect("it is heard");
    };
    let task = transcription_task(with_late_partials(), input, reports);
    tokio::join!(story, task.run());
    assert_eq!(drained(&mut inbox), ["provisional: utterance of 320 samples", "final: utterance of 960 samples"]);
}

#[tokio::test(start_paused = true)]
async fn words_that_waited_behind_a_lull_are_heard() {
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, input) = mpsc::channel(INPUT_PIECES);
    let mut task = transcription_task(with_late_partials(), input, reports);
    // As they wait while the engine takes audio of a client that sends faster than it speaks.
    task.backlog.extend([
        TranscriptionInput::Pcm(vec![0; 320]),
        TranscriptionInput::Lull,
        TranscriptionInput::Pcm(vec![3_000; 320]),
    ]);
    let story = async move {
        tokio::time::sleep(Duration::from_millis(40)).await;
        sender.send(TranscriptionInput::RequestProvisional).await.expect("it is heard");
        sender.send(TranscriptionInput::Finish { confirms_provisional: true }).await.expect("it is heard");
    };
    tokio::join!(story, task.run());
    let of_all = ["provisional: utterance of 640 samples", "final: utterance of 640 samples", "learnt"];
    assert_eq!(drained(&mut inbox), of_all);
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_in_the_lull_is_waited_for_and_nothing_else() {
    let pcm = || TranscriptionInput::Pcm(vec![0; 320]);
    let lull = || TranscriptionInput::Lull;
    let end = || TranscriptionInput::Finish { confirms_provisional: false };
    for last in [|| TranscriptionInput::RequestProvisional, end] {
        let in_lull = after_the_last(vec![pcm(), lull(), last()]).await;
        assert_eq!(in_lull, (Duration::from_millis(60), 1));
        let before_the_lull = after_the_last(vec![pcm(), TranscriptionInput::RequestPartial, last()]).await;
        assert_eq!(before_the_lull, (Duration::ZERO, 0));
        let burst = TranscriptionInput::Pcm(vec![3_000; 320]);
        let a_word_ends = after_the_last(vec![pcm(), lull(), burst, last()]).await;
        assert_eq!(a_word_ends, (Duration::ZERO, 0));
        let in_an_earlier_lull = after_the_last(vec![pcm(), lull(), lull(), last()]).await;
        assert_eq!(in_an_earlier_lull, (Duration::ZERO, 0));
    }
    let request = || TranscriptionInput::RequestPartial;
    let end = TranscriptionInput::RequestProvisional;
    let with_words = vec![pcm(), request(), pcm(), pcm(), pcm(), request(), lull(), end];
    assert_eq!(after_the_last(with_words).await, (Duration::from_millis(60), 2), "the lull's began again");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_void_by_now_leaves_the_partial_transcript_wanted() {
    let inputs = || {
        [
            TranscriptionInput::Pcm(vec![3_000; 320]),
            TranscriptionInput::RequestPartial,
            TranscriptionInput::RequestProvisional,
        ]
    };
    for (rest, n_partials) in [(None, 0), (Some(TranscriptionInput::Resumed), 1)] {
        let engine = FakeStt::default().with_partials();
        let (reports, _inbox) = mpsc::channel(8);
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let mut task = transcription_task(Arc::new(engine.clone()), input, reports);
        task.backlog.extend(inputs().into_iter().chain(rest));
        let running = tokio::time::timeout(Duration::from_secs(1), task.run());
        assert!(running.await.is_err(), "it waits for more");
        drop(sender);
        assert_eq!(engine.partial_requests().len(), n_partials);
    }
}
