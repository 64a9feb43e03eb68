//! The connection of Asterisk's events: who may have it, and by which password.

use super::{AWAY, Asterisk, password};
use crate::hub::{Hub, engines};
use crate::sip::calling::call;
use crate::telephony::calls_out::CALLEE;
use antiphon::server::{Extras, Keys, Parts, Reload};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_new_password_counts_for_requests_and_for_the_next_connection_of_events() {
    let mut asterisk = Asterisk::new();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let config = asterisk.config();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    asterisk.followed().await;
    let replace = async |password: &str| {
        let account_secrets = [("office".to_owned(), password.to_owned())].into();
        reload.send(Reload { account_secrets, ..Reload::default() }).await.expect("taken");
        // It is applied once there is room for the next.
        reload.send(Reload::default()).await.expect("taken");
        reload.send(Reload::default()).await.expect("taken");
    };
    replace("another password").await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    let refused = json!("The provider refused: Authentication required");
    assert_eq!((status, &answer["error"]["message"]), (502, &refused), "the events go on, and the request has it");
    asterisk.made().await;
    asterisk.close_events();
    sleep(Duration::from_secs(5)).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!(AWAY)));
    replace(&password()).await;
    asterisk.followed().await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    asterisk.made().await;
    hub.stop().await;
}
