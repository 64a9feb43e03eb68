//! The embedded web pages: `web/dist`, or a placeholder page with build instructions, as chosen by `build.rs`.
//!
//! [`super::pages`] and [`super::open_routes`] call [`asset`]. This module reads no file at run time and does not
//! depend on HTTP.

use rust_embed::RustEmbed;
use std::borrow::Cow;

#[derive(RustEmbed)]
#[folder = "$ANTIPHON_WEB_DIR"]
struct Web;

/// An embedded file.
pub struct Asset {
    pub body: Cow<'static, [u8]>,
    pub media_type: &'static str,
    /// An entity tag of the content, weak because the body is compressed on its way: `W/"` and half of its SHA-256 in hex.
    pub tag: String,
}

/// The file at `path`, relative and without a leading slash. The empty path is `index.html`, `dashboard` is `dashboard.html`,
/// `inspector` is `inspector.html`. `None` if there is no such file. Does not block; copies no body.
pub fn asset(path: &str) -> Option<Asset> {
    let path = match path {
        "" => "index.html",
        "dashboard" => "dashboard.html",
        "inspector" => "inspector.html",
        other => other,
    };
    let file = Web::get(path)?;
    let digest = file.metadata.sha256_hash();
    let tag = format!("W/\"{:032x}\"", u128::from_be_bytes(digest[..16].try_into().ok()?));
    Some(Asset { body: file.data, media_type: media_type(path), tag })
}

fn media_type(path: &str) -> &'static str {
    // Browsers reject a worklet, a module or a page of the wrong media type; other files may be plain bytes.
    match mime_guess::from_path(path).first_raw() {
        Some("text/html") => "text/html; charset=utf-8",
        Some(other) => other,
        None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_and_nothing_outside_it() {
        for path in ["", "dashboard", "inspector"] {
            let Asset { body, media_type, tag } = asset(path).expect("a page, built or not");
            assert_eq!(media_type, "text/html; charset=utf-8");
            assert_eq!(tag.len(), "W/\"\"".len() + 32, "{tag}");
            assert!(String::from_utf8_lossy(&body).to_lowercase().starts_with("<!doctype html>"));
        }
        assert!(asset("../Cargo.toml").is_none());
        assert!(asset("no-such-file.js").is_none());
    }

    #[test]
    fn scripts_and_modules_have_types_browsers_take() {
        assert_eq!(media_type("assets/app-1.js"), "text/javascript");
        assert_eq!(media_type("a.wasm"), "application/wasm");
        assert_eq!(media_type("a.unknown"), "application/octet-stream");
    }
}
