//! The `[telemetry]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// Traces.
    pub struct TelemetryConfig in "telemetry" {
        /// The HTTP address of an OTLP collector for traces, such as "http://127.0.0.1:4318", with the headers
        /// of OTEL_EXPORTER_OTLP_HEADERS.
        pub otlp_endpoint: String = String::new(), Rule::UrlOrNone;
    }
}
