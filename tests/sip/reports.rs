//! RTCP: what the hub reports to a phone, and what it shows of what a phone reports.

use super::phone::{Options, Phone};
use super::{calls, config, hub, soon};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_sip::rtcp::{self, ReceptionReport, Report};
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// The stream of a phone.
const PHONE: u32 = 99;

#[tokio::test(start_paused = true)]
async fn loss_and_jitter_are_reported_and_shown() {
    let (config, sip) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    while phone.reports.len() < 2 {
        phone.talk(0.0, 180).await;
        phone.lose();
    }
    let read = |bytes: &[u8]| rtcp::read(bytes, PHONE).expect("a report");
    let last = read(phone.reports.last().expect("a report"));
    let came = Instant::now();
    let about_us = last.reception.expect("about the phone");
    // One of ten.
    assert!((15..40).contains(&about_us.fraction_lost) && about_us.n_lost > 10, "{about_us:?}");
    let sender = last.sender.expect("of the hub");
    assert!(sender.n_packets as usize <= phone.n_packets && sender.n_packets > 100, "{sender:?}");
    assert_eq!(sender.n_bytes, 160 * sender.n_packets, "silence in 20 ms");
    let media = calls(&hub).await["data"][0]["media"].clone();
    assert_eq!(media["peer_packets_lost"], json!(null), "{media}");
    assert!(media["packets_lost"].as_i64().expect("a number") > 10 && media["encrypted"] == false, "{media}");
    phone.talk(0.0, 500).await;
    // Of the hub's stream, 3 lost, half a second after its report.
    let report = ReceptionReport {
        ssrc: phone.heard_ssrc.expect("a stream"),
        fraction_lost: 1,
        n_lost: 3,
        highest: 1,
        jitter: 80,
        last_report: (sender.ntp >> 16) as u32,
        delay: (came.elapsed().as_secs_f64() * 65_536.0) as u32,
    };
    let bytes = Report { ssrc: PHONE, sender: None, reception: Some(report), is_last: false }.write("phone");
    let to = phone.hub_rtp();
    phone.rtp.send_to(&bytes, to).await.expect("sent");
    phone.talk(0.0, 100).await;
    let media = calls(&hub).await["data"][0]["media"].clone();
    assert_eq!((&media["peer_packets_lost"], &media["peer_jitter_ms"]), (&json!(3), &json!(10.0)), "{media}");
    // The phone looks for reports now and then.
    assert!((0.0..1_000.0).contains(&media["round_trip_ms"].as_f64().expect("a number")), "{media}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_rtcp_mux_gets_reports_at_its_port_and_a_goodbye() {
    let (config, sip) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let rtcp = Some(socket.local_addr().expect("bound"));
    let mut phone = Phone::connect(sip, Options { rtcp, ..Options::default() }).await;
    phone.talk(0.0, 8_000).await;
    let mut buffer = [0; 2_048];
    let (n, from) = soon("a report", socket.recv_from(&mut buffer)).await.expect("a report");
    assert_eq!(from.port(), phone.hub_rtp().port() + 1);
    assert!(rtcp::read(&buffer[..n], PHONE).expect("a report").reception.is_some());
    assert!(phone.reports.is_empty());
    phone.send(antiphon_sip::Method::Bye, "", "").await;
    phone.talk(0.0, 100).await;
    let is_goodbye = |bytes: &[u8]| bytes.len() > 8 && bytes[bytes.len() - 7] == 203;
    let ends = async {
        loop {
            let (n, _) = socket.recv_from(&mut buffer).await.expect("a report");
            if is_goodbye(&buffer[..n]) {
                return;
            }
        }
    };
    soon("a goodbye", ends).await;
    hub.stop().await;
}
