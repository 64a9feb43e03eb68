//! Turn models: what says of a pause's audio whether the turn is over.

#[cfg(feature = "smart-turn")]
mod smart;

#[cfg(feature = "smart-turn")]
pub use smart::SmartTurn;
