//! Classification of calls that ended without a response, or within it.
//!
//! An error of TLS that every retry would repeat is distinguished from an outage: the certificate of the
//! server is not accepted, or the server does not use TLS.

use std::error::Error;
use std::io;

use rustls::InvalidMessage;
use tidegate_core::request::Outcome;

/// Returns the outcome of a call that ended in a transport error, before or within its response.
pub(crate) fn transport_error_outcome(error: &reqwest::Error) -> Outcome {
    // On a connection that is set up, such an error comes after the provider may have processed the call.
    if error.is_connect() && tls_error(error).is_some() {
        Outcome::TlsFailed
    } else if error.is_connect() {
        Outcome::ConnectionFailed
    } else if error.is_timeout() {
        Outcome::ProviderTimeout
    } else {
        Outcome::ProviderFailure
    }
}

/// Returns the cause of an error if it is that the certificate of the server is not accepted, or that the
/// server does not use TLS.
pub(crate) fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    cause_of(error).filter(|error| {
        use rustls::Error::{InvalidCertificate, InvalidMessage as Message};
        matches!(error, InvalidCertificate(_) | Message(InvalidMessage::InvalidContentType))
    })
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
