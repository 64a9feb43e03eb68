//! Messages of the client, and what is refused of them before the reducer sees them.
//!
//! Adapters of transports make them, the actor takes them, in order.

use antiphon_audio::codec::CodecError;
use antiphon_dialog::{Action, Notice};
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{AudioFormat, ClientEvent, Content, Incoming, InputItem, Item, ItemBody, WireError};
use tokio::sync::OwnedSemaphorePermit;

/// One message of a client.
pub struct Inbound {
    /// Its content.
    pub payload: InboundPayload,
    /// Its share of the budgets of inbound bytes, returned when it has been processed.
    pub budget: Option<BudgetPermit>,
}

/// A message's share of the budgets of unprocessed bytes. Dropping it returns the share.
pub struct BudgetPermit {
    /// Of its session's budget.
    pub own: OwnedSemaphorePermit,
    /// Of the budget of all sessions.
    pub common: OwnedSemaphorePermit,
}

/// Content of a message. Adapters read it from their wire; the session knows no wire.
#[derive(Clone, Debug, PartialEq)]
pub enum InboundPayload {
    /// An event. Audio in it is in the session's input format.
    Event(Box<Incoming>),
    /// Audio of a microphone, for a session whose audio is not in events: PCM16 at 24 kHz or one Opus packet.
    Audio(MicrophoneFrame),
    /// The user's line is on hold, or no longer: the user neither hears nor is heard.
    LineHeld(bool),
    /// A message that its adapter could not read. The session sends the error, in the order of the messages.
    Invalid(Box<WireError>),
}

impl From<ClientEvent> for InboundPayload {
    fn from(event: ClientEvent) -> Self {
        Self::Event(Box::new(Incoming { event_id: None, event }))
    }
}

impl From<Result<Incoming, WireError>> for InboundPayload {
    fn from(read: Result<Incoming, WireError>) -> Self {
        match read {
            Ok(event) => Self::Event(Box::new(event)),
            Err(error) => Self::Invalid(Box::new(error)),
        }
    }
}

impl From<Result<MicrophoneFrame, WireError>> for InboundPayload {
    fn from(read: Result<MicrophoneFrame, WireError>) -> Self {
        match read {
            Ok(frame) => Self::Audio(frame),
            Err(error) => Self::Invalid(Box::new(error)),
        }
    }
}

/// Refuses images in an event's items: the model takes none.
pub(super) fn refuse_images(event: &ClientEvent) -> Result<(), WireError> {
    let refuse = |item: &Item, path: &str| {
        let ItemBody::Message { content, .. } = &item.body else { return Ok(()) };
        let Some(n) = content.iter().position(|part| matches!(part, Content::InputImage { .. })) else { return Ok(()) };
        let message = "Invalid value: 'input_image'. This server's language model takes no images; describe them in \
                       'input_text'.";
        Err(WireError::invalid("invalid_value", message, Some(&format!("{path}.content[{n}].type"))))
    };
    match event {
        ClientEvent::ItemCreate { item, .. } => refuse(item, "item"),
        ClientEvent::ResponseCreate(params) => {
            params.input.iter().flatten().enumerate().try_for_each(|(n, entry)| match entry {
                InputItem::Item(item) => refuse(item, &format!("response.input[{n}]")),
                InputItem::Reference(_) => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// Whether the reducer has refused a command.
pub(super) fn is_refused(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Notify(Notice::Refused { .. })))
}

/// Refuses a format that cannot be in packets of their own. `path`: its field in the client's event.
pub(super) fn check_packet_format(format: Option<AudioFormat>, path: &str) -> Result<(), WireError> {
    if format.is_none_or(|format| format == AudioFormat::Pcm) {
        return Ok(());
    }
    let message = "Binary audio frames carry 'audio/pcm' or Opus, as the connection asked; G.711 needs a connection \
                   without '?audio='.";
    Err(WireError::invalid("invalid_value", message, Some(path)))
}

pub(super) fn bad_audio(error: &CodecError) -> WireError {
    WireError::invalid("invalid_value", format!("Invalid 'audio': {error}."), Some("audio"))
}
