//! (in work)

mod assets;

pub use assets::asset;
