//! The torture messages of RFC 4475, by their names there, at an endpoint that lets their sender call.
//!
//! A message may be answered, refused, taken for a call or dropped, as the RFC says; none may panic or leave anything
//! behind. The names of hosts are the RFC's. Long values are made here.

use antiphon_sip::{Config, Endpoint, Event, Message, Output, Peer, Transport, Trunk};
use std::time::{Duration, Instant};

/// What an endpoint does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A call that may be answered.
    Call,
    /// Nothing is said.
    Silence,
    /// A response with this status.
    Status(u16),
}
use Outcome::{Call, Silence, Status};

const SDP: &str = "v=0
o=mhandley 29739 7272939 IN IP4 192.0.2.3
s=-
c=IN IP4 192.0.2.4
t=0 0
m=audio 49217 RTP/AVP 0 12
m=video 3227 RTP/AVP 31
a=rtpmap:31 LPC
";

/// The lines that most of the messages have, for this method.
fn usual(method: &str, uri: &str, name: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0
To: sip:user@example.com
From: sip:caller@example.org;tag=33242
Max-Forwards: 3
Call-ID: {name}.0ha0isndaksdj
CSeq: 8 {method}
Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{name}
"
    )
}

fn messages() -> Vec<(&'static str, Outcome, String)> {
    let invite = |name: &str| usual("INVITE", "sip:user@example.com", name);
    let options = |name: &str| usual("OPTIONS", "sip:user@example.com", name);
    let register = |name: &str| usual("REGISTER", "sip:example.com", name);
    let sdp = format!("Contact: <sip:caller@host5.example.net>\nContent-Type: application/sdp\nl: 150\n\n{SDP}");
    let end = "l: 0\n\n";
    let long = "x".repeat(200);
    vec![
        (
            "wsinv",
            // Its tag is one of a dialog that is not there.
            Status(481),
            format!(
                r#"INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0
TO :
 sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n
from   : "J Rosenberg \\\""       <sip:jdrosen@example.com>
  ;
  tag = 98asjd8
MaX-fOrWaRdS: 0068
Call-ID: wsinv.ndaksdj@192.0.2.1
Content-Length   : 150
cseq: 0009
  INVITE
Via  : SIP  /   2.0
 /UDP
    192.0.2.2;branch=390skdjuw
s :
NewFangledHeader:   newfangled value
 continued newfangled value
UnknownHeaderWithUnusualValue: ;;,,;;,;
Content-Type: application/sdp
Route:
 <sip:services.example.com;lr;unknownwith=value;unknown-no-value>
v:  SIP  / 2.0  / TCP     spindle.example.com   ;
  branch  =   z9hG4bK9ikj8  ,
 SIP  /    2.0   / UDP  192.168.255.111   ; branch=
 z9hG4bK30239
m:"Quoted string \"\"" <sip:jdrosen@example.com> ; newparam =
      newvalue ;
  secondparam ; q = 0.33

{SDP}"#
            ),
        ),
        (
            "intmeth",
            Status(405),
            "!interesting-Method0123456789_*+`.%indeed'~ sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*\
             :&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com SIP/2.0
Via: SIP/2.0/TCP host1.example.com;rport;branch=z9hG4bK-.!%66*_+`'~
To: \"BEL:\\\u{7} NUL:\\\u{0} DEL:\\\u{7f}\" <sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*@example.com>
From: token1~` token2'+_ token3*%!.- <sip:mundane@example.com>;fromParam''~+*_!.-%=\"работающий\"\
             ;tag=_token~1'+`*%!-.
Call-ID: intmeth.word%ZK-!.*_+'@word`~)(><:\\/\"][?}{
CSeq: 139122385 !interesting-Method0123456789_*+`.%indeed'~
Max-Forwards: 255
extensionHeader-!.%*+_`'~: 大停電
Content-Length: 0

"
            .to_owned(),
        ),
        (
            "esc01",
            Call,
            format!(
                "INVITE sip:sips%3Auser%40example.com@example.net SIP/2.0
To: sip:%75se%72@example.com
From: <sip:I%20have%20spaces@example.net>;tag=938
Max-Forwards: 87
i: esc01.239409asdfakjkn23onasd0-3234
CSeq: 234234 INVITE
Via: SIP/2.0/UDP host5.example.net;branch=z9hG4bKkdjuw
C: application/sdp
Contact: <sip:cal%6Cer@host5.example.net;%6C%72;n%61me=v%61lue%25%34%31>
Content-Length: 150

{SDP}"
            ),
        ),
        (
            "escnull",
            Status(405),
            "REGISTER sip:example.com SIP/2.0
To: sip:null-%00-null@example.com
From: sip:null-%00-null@example.com;tag=839923423
Max-Forwards: 70
Call-ID: escnull.39203ndfvkjdasfkq3w4otrq0adsfdfnavd
CSeq: 14398234 REGISTER
Via: SIP/2.0/UDP host5.example.com;branch=z9hG4bKkdjuw
Contact: <sip:%00@host5.example.com>
Contact: <sip:%00%00@host5.example.com>
L:0

"
            .to_owned(),
        ),
        (
            "esc02",
            Status(405),
            "RE%47IST%45R sip:registrar.example.com SIP/2.0
To: \"%Z%45\" <sip:resource@example.com>
From: \"%Z%45\" <sip:resource@example.com>;tag=f232jadfj23
Call-ID: esc02.asdfnqwo34rq23i34jrjasdcnl23nrlknsdf
Via: SIP/2.0/TCP host.example.com;branch=z9hG4bK209%fzsnel234
CSeq: 29344 RE%47IST%45R
Max-Forwards: 70
Contact: <sip:alias1@host1.example.com>
C%6Fntact: <sip:alias2@host2.example.com>
Contact: <sip:alias3@host3.example.com>
l: 0

"
            .to_owned(),
        ),
        (
            "lwsdisp",
            Status(200),
            options("lwsdisp")
                .replace("From: sip:caller@example.org", "From: caller<sip:caller@example.org>")
                + end,
        ),
        (
            "longreq",
            Call,
            format!(
                "INVITE sip:user@example.com SIP/2.0
To: \"I have a user name of {long} proportion\" <sip:user@example.com:6000;{long}=very>
F: sip:amazinglylongcallername{long}@example.net;tag=12{long}424;unknownheaderparam{long}name={long}
Call-ID: longreq.one{long}longcallid
CSeq: 3882340 INVITE
Unknown-{long}-Name: unknown-{long}-value; unknown-{long}-parameter-name = unknown-{long}-parameter-value
Via: SIP/2.0/TCP sip33.example.com
v: SIP/2.0/TCP sip32.example.com;branch=z9hG4bK{long}
V: SIP/2.0/TCP sip31.example.com
Max-Forwards: 70
Contact: <sip:amazinglylongcallername{long}@host5.example.net>
Content-Type: application/sdp
l: 150

{SDP}"
            ),
        ),
        (
            "dblreq",
            Status(405),
            register("dblreq")
                + end
                + "INVITE sip:joe@example.com SIP/2.0\nt: sip:joe@example.com\n\n",
        ),
        (
            "semiuri",
            Status(200),
            usual("OPTIONS", "sip:user;par=u%40example.net@example.com", "semiuri")
                + end,
        ),
        (
            "transports",
            Status(200),
            options("transports")
                + "Via: SIP/2.0/SCTP t2.example.com;branch=z9hG4bKklasjdhf
Via: SIP/2.0/TLS t3.example.com;branch=z9hG4bK2980unddj
Via: SIP/2.0/UNKNOWN t4.example.com;branch=z9hG4bKasd0f3en
Via: SIP/2.0/TCP t5.example.com;branch=z9hG4bK0a9idfnee
l: 0

",
        ),
        (
            "mpart01",
            Status(405),
            usual("MESSAGE", "sip:kumiko@example.org", "mpart01")
                + "Content-Type: multipart/mixed;boundary=7a9cbec02ceef655\nContent-Length: 30\n\n\
                   --7a9cbec02ceef655\nBinary \u{1}\u{2}\u{3}",
        ),
        (
            "unreason",
            Silence,
            "SIP/2.0 200 = 2**3 * 5**2 но сто девяносто девять - простое
Via: SIP/2.0/UDP 192.0.2.198;branch=z9hG4bK1324923
Call-ID: unreason.1234ksdfak3j2erwedfsASdf
CSeq: 35 INVITE
From: sip:user@example.com;tag=11141343
To: sip:user@example.edu;tag=2229
Content-Length: 0

"
            .to_owned(),
        ),
        (
            "noreason",
            Silence,
            "SIP/2.0 100 \nVia: SIP/2.0/UDP 192.0.2.105;branch=z9hG4bK2398ndaoe\nCall-ID: noreason.asndj203insdf99223ndf
CSeq: 35 INVITE\nFrom: <sip:user@example.com>;tag=39ansfi3\nTo: <sip:user@example.edu>;tag=902jndnke3
Content-Length: 0\n\n"
                .to_owned(),
        ),
        // No answer is possible without a Via.
        (
            "badinv01",
            Silence,
            invite("badinv01")
                .replace("192.0.2.9;branch=z9hG4bKbadinv01", "192.0.2.15;;,;,,")
                + &sdp,
        ),
        (
            "badinv01, contact",
            Status(400),
            invite("badinv01c")
                + "Contact: \"Joe\" <sip:joe@example.org>;;;;\nl: 0\n\n",
        ),
        ("clerr", Status(400), invite("clerr") + &sdp.replace("l: 150", "l: 9999")),
        ("ncl", Status(400), invite("ncl") + &sdp.replace("l: 150", "l: -999")),
        (
            "scalar02",
            Status(400),
            register("scalar02")
                .replace("CSeq: 8 ", "CSeq: 36893488147419103232 ")
                + end,
        ),
        (
            "scalar02, hops",
            Status(400),
            register("scalar02h")
                .replace("Max-Forwards: 3", "Max-Forwards: 300")
                + end,
        ),
        (
            "scalarlg",
            Silence,
            "SIP/2.0 503 Service Unavailable
Via: SIP/2.0/TCP host129.example.com;branch=z9hG4bKzzxdiwo34sw;received=192.0.2.129
To: <sip:user@example.com>\nFrom: <sip:other@example.net>;tag=2easdjfejw\nCSeq: 9292394834772304023312 OPTIONS
Call-ID: scalarlg.noase0of0234hn2qofoaf0232aewf2394r\nRetry-After: 949302838503028349304023988
Warning: 1812 overture \"In Progress\"\nContent-Length: 0\n\n"
                .to_owned(),
        ),
        (
            "quotbal",
            Status(400),
            invite("quotbal")
                .replace("sip:user@example.com\nFrom", "\"Mr. J. User <sip:j.user@example.com>\nFrom")
                + &sdp,
        ),
        ("ltgtruri", Status(400), usual("INVITE", "<sip:user@example.com>", "ltgtruri") + &sdp),
        ("lwsruri", Status(400), usual("INVITE", "sip:user@example.com; lr", "lwsruri") + &sdp),
        ("lwsstart", Status(400), usual("INVITE", " sip:user@example.com ", "lwsstart") + &sdp),
        ("trws", Status(400), options("trws").replace("SIP/2.0\n", "SIP/2.0  \n") + end),
        (
            "escruri",
            Status(400),
            usual("INVITE", "sip:user@example.com?Route=%3Csip:example.com%3E", "escruri")
                + &sdp,
        ),
        // The date is not read here.
        ("baddate", Call, invite("baddate") + "Date: Fri, 01 Jan 2010 16:00:00 EST\n" + &sdp),
        (
            "regbadct",
            Status(405),
            register("regbadct")
                + "Contact: sip:user@example.com?Route=%3Csip:sip.example.com%3E\nl: 0\n\n",
        ),
        (
            "badaspec",
            Status(400),
            options("badaspec")
                .replace("sip:user@example.com\nFrom", "\"Watson, Thomas\" < sip:t.watson@example.org >\nFrom")
                + end,
        ),
        (
            "baddn",
            Status(400),
            options("baddn")
                .replace("From: sip:caller@example.org", "From: Bell, Alexander <sip:a.g.bell@example.com>")
                + end,
        ),
        ("badvers", Status(505), options("badvers").replacen("SIP/2.0", "SIP/7.0", 1) + end),
        ("mismatch01", Status(400), options("mismatch01").replace("8 OPTIONS", "8 INVITE") + end),
        (
            "mismatch02",
            Status(400),
            usual("NEWMETHOD", "sip:user@example.com", "mismatch02")
                .replace("8 NEWMETHOD", "8 INVITE")
                + &sdp,
        ),
        (
            "bigcode",
            Silence,
            "SIP/2.0 4294967301 better not break the receiver
Via: SIP/2.0/UDP 192.0.2.105;branch=z9hG4bK2398ndaoe\nCall-ID: bigcode.asdof3uj203asdnf3429uasdhfas3ehjasdfas9i
CSeq: 353494 INVITE\nFrom: <sip:user@example.com>;tag=39ansfi3\nTo: <sip:user@example.edu>;tag=902jndnke3
Content-Length: 0\n\n"
                .to_owned(),
        ),
        (
            "badbranch",
            Status(200),
            options("badbranch")
                .replace("z9hG4bKbadbranch", "z9hG4bK")
                + end,
        ),
        (
            "insuf",
            Status(400),
            format!(
                "INVITE sip:user@example.com SIP/2.0\nCSeq: 193942 INVITE
Via: SIP/2.0/UDP 192.0.2.95;branch=z9hG4bKkdj.insuf
Content-Type: application/sdp\nl: 150\n\n{SDP}"
            ),
        ),
        (
            "unkscm",
            Status(416),
            usual("OPTIONS", "nobodyKnowsThisScheme:totallyopaquecontent", "unkscm")
                + end,
        ),
        ("novelsc", Status(416), usual("OPTIONS", "soap.beep://192.0.2.103:3002", "novelsc") + end),
        (
            "unksm2",
            Status(405),
            register("unksm2")
                .replace("sip:user@example.com\n", "isbn:2983792873\n")
                .replace("sip:caller@example.org", "<http://www.example.com>")
                + "Contact: <name:John_Smith>\nl: 0\n\n",
        ),
        (
            "bext01",
            Status(420),
            options("bext01")
                + "Require: nothingSupportsThis, nothingSupportsThisEither
Proxy-Require: noProxiesSupportThis\nl: 0\n\n",
        ),
        (
            "invut",
            Status(415),
            invite("invut")
                + "Contact: <sip:caller@example.net>
Content-Type: application/unknownformat\nContent-Length: 6\n\n<audio",
        ),
        (
            "regaut01",
            Status(405),
            register("regaut01")
                + "Authorization: NoOneKnowsThisScheme opaque-data=here\nl: 0\n\n",
        ),
        (
            "multi01",
            Status(400),
            invite("multi01")
                + "CSeq: 59 INVITE\nCall-ID: multi01.97\nFrom: sip:caller@example.net;tag=1\n"
                + &sdp,
        ),
        (
            "mcl01",
            Status(400),
            options("mcl01")
                + "Content-Length: 13\nContent-Length: 5\n\nThere's no way",
        ),
        (
            "bcast",
            Silence,
            "SIP/2.0 200 OK\nVia: SIP/2.0/UDP 192.0.2.198;branch=z9hG4bK1324923
Via: SIP/2.0/UDP 255.255.255.255;branch=z9hG4bK1saber23
Call-ID: bcast.0384840201234ksdfak3j2erwedfsASdf\nCSeq: 35 INVITE\nFrom: sip:user@example.com;tag=11141343
To: sip:user@example.edu;tag=2229\nContent-Length: 0\n\n"
                .to_owned(),
        ),
        // An endpoint is the request's end, not one of its hops.
        (
            "zeromf",
            Status(200),
            options("zeromf")
                .replace("Max-Forwards: 3", "Max-Forwards: 0")
                + end,
        ),
        (
            "cparam01",
            Status(405),
            register("cparam01")
                + "Contact: sip:+19725552222@gw1.example.net;unknownparam\nl: 0\n\n",
        ),
        (
            "cparam02",
            Status(405),
            register("cparam02")
                + "Contact: <sip:+19725552222@gw1.example.net;unknownparam>\nl: 0\n\n",
        ),
        (
            "regescrt",
            Status(405),
            register("regescrt")
                + "Contact: <sip:user@example.com?Route=%3Csip:sip.example.com%3E>\nl: 0\n\n",
        ),
        ("sdp01", Status(406), invite("sdp01") + "Accept: text/nobodyKnowsThis\n" + &sdp),
        (
            "inv2543",
            Call,
            format!(
                "INVITE sip:UserB@example.com SIP/2.0\nVia: SIP/2.0/UDP iftgw.example.com
From: <sip:+13035551111@ift.client.example.net;user=phone>\nRecord-Route: <sip:UserB@example.com;maddr=ss1.example.com>
To: sip:+16505552222@ss1.example.net;user=phone\nCall-ID: inv2543.1717@ift.client.example.com\nCSeq: 56 INVITE
Content-Type: application/sdp\n\n{SDP}"
            ),
        ),
    ]
}

#[allow(clippy::disallowed_methods)]
fn outcome_of(text: &str, transport: Transport) -> Outcome {
    let config = Config {
        advertised: "192.0.2.1:5060".parse().expect("an address"),
        tls_port: 0,
        agent: "antiphon".into(),
        trunks: vec![Trunk { allowed: vec!["192.0.2.0/24".parse().expect("an address")], ..Trunk::default() }],
        secret: [1; 32],
    };
    let now = Instant::now();
    let mut endpoint = Endpoint::new(config, now);
    let peer = Peer { transport, address: "192.0.2.9:5060".parse().expect("an address") };
    endpoint.receive(now, peer, text.replace('\n', "\r\n").as_bytes());
    let mut outcome = Silence;
    let mut call = None;
    while let Some(output) = endpoint.poll() {
        match output {
            Output::Send { bytes, .. } => {
                let status = Message::parse(&bytes).expect("a message").status().expect("a response");
                if status >= 200 {
                    outcome = Status(status);
                }
            }
            Output::Event(Event::Incoming(incoming)) => {
                outcome = Call;
                call = Some(incoming.call);
            }
            Output::Event(_) | Output::Resolve { .. } => {}
        }
    }
    if let Some(call) = call {
        endpoint.accept(now, call, "v=0\r\n");
    }
    endpoint.expire(now + Duration::from_secs(600));
    endpoint.expire(now + Duration::from_secs(1_200));
    endpoint.expire(now + Duration::from_secs(1_800));
    assert_eq!((endpoint.n_calls(), endpoint.next_deadline()), (0, None), "something is left");
    outcome
}

#[test]
fn each_torture_message_is_answered_as_its_document_says() {
    let messages = messages();
    assert_eq!(messages.len(), 51, "the RFC's 49, two of them in two parts");
    let mut wrong = Vec::new();
    for (name, expected, text) in messages {
        // By a stream, where no answer is left out for its length.
        let found = outcome_of(&text, Transport::Tcp);
        if found != expected {
            wrong.push(format!("{name}: {found:?}, not {expected:?}"));
        }
        let _ = outcome_of(&text, Transport::Udp);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_torture_message_that_is_cut_anywhere_panics_nowhere() {
    for (_, _, text) in messages() {
        let text = text.replace('\n', "\r\n");
        for end in (0..text.len()).step_by(7) {
            let _ = Message::parse(&text.as_bytes()[..end]);
        }
    }
}
