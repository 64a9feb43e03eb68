//! How far a call's reply is, for tools that wait until it has been said.
//!
//! [`super::conversation`] keeps a [`ReplyTracker`] for its reader and writer; a tool waits by [`ReplyWatch::ended`].

use antiphon_protocol::{ItemBody, ResponsePart, ServerEvent};
use antiphon_types::ItemId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest wait of a tool for the end of a reply.
const REPLY_ENDS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Default, PartialEq)]
struct ReplyProgress {
    /// Tool calls that the writer has seen announced, which it does in order with the reply's audio.
    n_tool_calls: u64,
    is_sounding: bool,
}

/// The side of the conversation.
pub(super) struct ReplyTracker {
    progress: watch::Sender<ReplyProgress>,
    /// The label of the tools.
    label: &'static str,
    /// Items whose audio has not left the session.
    unsent: HashSet<ItemId>,
}

/// The side of the tools.
pub(super) struct ReplyWatch {
    progress: watch::Receiver<ReplyProgress>,
    n_tool_calls: AtomicU64,
}

/// Both sides, for tools of the server with this label.
pub(super) fn reply_progress(label: &'static str) -> (ReplyTracker, ReplyWatch) {
    let (sender, progress) = watch::channel(ReplyProgress::default());
    let tracker = ReplyTracker { progress: sender, label, unsent: HashSet::new() };
    (tracker, ReplyWatch { progress, n_tool_calls: AtomicU64::new(0) })
}

/// Whether a reply sounds, for the call itself.
pub(super) struct ReplySound(watch::Receiver<ReplyProgress>);

impl ReplySound {
    /// Whether audio of the session has not left it, waits for its time, or is not played by a peer that says so.
    pub(super) fn is_sounding(&self) -> bool {
        self.0.borrow().is_sounding
    }

    /// Resolves when nothing sounds, and after 60 s at most. Cancel safe.
    pub(super) async fn ended(&mut self) {
        // Without a writer the call is over.
        let _ = timeout(REPLY_ENDS_WITHIN, self.0.wait_for(|progress| !progress.is_sounding)).await;
    }
}

impl ReplyTracker {
    /// An event of the session, in its order.
    pub(super) fn happened(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::OutputItemAdded { item, .. } => {
                let is_tools =
                    matches!(&item.body, ItemBody::McpCall { server_label, .. } if server_label == self.label);
                if is_tools {
                    self.progress.send_modify(|progress| progress.n_tool_calls += 1);
                }
            }
            ServerEvent::ContentPartAdded { at, part: ResponsePart::Audio { .. } } => {
                self.unsent.insert(at.item.item_id.clone());
            }
            ServerEvent::OutputAudioSent { item_id, .. } => {
                self.unsent.remove(item_id);
            }
            ServerEvent::OutputCleared { .. } => self.unsent.clear(),
            _ => {}
        }
    }

    /// Follows whether something sounds.
    pub(super) fn sound(&self) -> ReplySound {
        ReplySound(self.progress.subscribe())
    }

    /// Says whether something sounds: audio of the session, or, with `has_rest`, what has left it and is not played.
    pub(super) fn update(&self, has_rest: bool) {
        let is_sounding = has_rest || !self.unsent.is_empty();
        self.progress.send_if_modified(|progress| {
            let changes = progress.is_sounding != is_sounding;
            progress.is_sounding = is_sounding;
            changes
        });
    }
}

impl ReplyWatch {
    /// Counts a call of a tool that does not wait.
    pub(super) fn passed(&self) {
        self.n_tool_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves when nothing sounds of what the model said before this call of a tool, and after 60 s at most. Called
    /// once for each call that waits.
    pub(super) async fn ended(&self) {
        let n = 1 + self.n_tool_calls.fetch_add(1, Ordering::Relaxed);
        let mut progress = self.progress.clone();
        let has_ended = |progress: &ReplyProgress| progress.n_tool_calls >= n && !progress.is_sounding;
        // Without a writer the call is over.
        let _ = timeout(REPLY_ENDS_WITHIN, progress.wait_for(has_ended)).await;
    }
}
