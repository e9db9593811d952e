//! Classification of calls that ended without a response, or within it.
//!
//! An error of TLS that every retry would repeat is distinguished from an outage: the certificate of the
//! server is not accepted, the server does not use TLS, the two sides have no version or cipher in common,
//! the server has no certificate for the name, or it requires one of its clients.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, InvalidMessage};
use tidegate_core::request::Outcome;

/// Returns the outcome of a call that ended in a transport error, before or within its response.
pub(crate) fn transport_error_outcome(error: &reqwest::Error) -> Outcome {
    // On a connection that is set up, such an error comes after the provider may have processed the call.
    // Only the lack of a client certificate is reported there by TLS 1.3, before the server reads a request.
    let is_not_sent = error.is_connect() || is_unsent(error);
    let is_at_start = |tls: &rustls::Error| is_not_sent || is_certificate_required(tls);
    if tls_error(error).is_some_and(is_at_start) {
        Outcome::TlsFailed
    } else if is_not_sent {
        Outcome::ConnectionFailed
    } else if error.is_timeout() {
        Outcome::ProviderTimeout
    } else {
        Outcome::ProviderFailure
    }
}

/// Returns whether a connection was set up and closed before any of the request was sent. The cause may be
/// lost: hyper drops it if the connection is closed between the end of its handshake and the request.
pub(crate) fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    cause_of::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled)
}

/// Returns the cause of an error if it is one of TLS that every retry would repeat.
pub(crate) fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    cause_of(error).filter(|error| match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::PeerIncompatible(_) => true,
        rustls::Error::InvalidMessage(message) => matches!(message, InvalidMessage::InvalidContentType),
        // Other alerts may be those of a server that is overloaded or starts.
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::CertificateRequired
                | AlertDescription::HandshakeFailure
                | AlertDescription::InsufficientSecurity
                | AlertDescription::ProtocolVersion
                | AlertDescription::UnrecognisedName
        ),
        _ => false,
    })
}

/// Returns whether the server has ended a connection because it requires a certificate of its clients.
fn is_certificate_required(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::AlertReceived(AlertDescription::CertificateRequired))
}

/// Returns the error of type `T` among the causes of an error.
pub(crate) fn cause_of<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an I/O error is not the error that it holds, but the source of that.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = held.map(|held| held as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}
