//! TwiML: what the hub tells Twilio to do with a call. Every value is escaped here.
//!
//! The webhook of calls that come in, calls out and transfers use it.

/// A document with this verb.
pub(super) fn document(verb: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>{verb}</Response>")
}

/// The verb that connects a call to the stream at `url`, which begins with these parameters.
pub(super) fn stream<'a>(url: &str, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let parameter =
        |(name, value): (&str, &str)| format!("<Parameter name=\"{}\" value=\"{}\"/>", xml(name), xml(value));
    let parameters: String = parameters.into_iter().map(parameter).collect();
    format!("<Connect><Stream url=\"{}\">{parameters}</Stream></Connect>", xml(url))
}

/// The verb that calls a number, or an address of SIP, and connects the call with it. `caller`: the number that is shown;
/// `None`: that of the call.
pub(super) fn dial(target: &str, caller: Option<&str>) -> String {
    let caller = caller.map(|caller| format!(" callerId=\"{}\"", xml(caller))).unwrap_or_default();
    let target = if target.starts_with("sip:") { format!("<Sip>{}</Sip>", xml(target)) } else { xml(target) };
    format!("<Dial{caller}>{target}</Dial>")
}

/// Text as content or as the value of an attribute. Control characters, which XML does not have, are left out.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_sends_is_no_xml() {
        assert_eq!(xml("<a b=\"c\">&\u{0}"), "&lt;a b=&quot;c&quot;&gt;&amp;");
        assert_eq!(dial("+4930123", None), "<Dial>+4930123</Dial>");
        let dialed = dial("sip:a&b@pbx.example.com", Some("+1\"555"));
        assert_eq!(dialed, "<Dial callerId=\"+1&quot;555\"><Sip>sip:a&amp;b@pbx.example.com</Sip></Dial>");
        let connected = stream("wss://a.example/?a&b", [("na<me", "v>")]);
        assert_eq!(
            connected,
            "<Connect><Stream url=\"wss://a.example/?a&amp;b\">\
             <Parameter name=\"na&lt;me\" value=\"v&gt;\"/></Stream></Connect>"
        );
    }
}
