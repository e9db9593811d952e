//! What crosses crates. One program, so that all of it is linked once and runs side by side; what counts allocations has an
//! allocator of its own and lies beside.

mod accounts;
mod budget_laws;
mod cases;
mod conformance;
mod control;
mod event_json;
mod fair_queue_laws;
mod fair_queue_model;
mod fairness;
mod gate_interleavings;
mod idle_suite;
mod known_faults;
mod refund_laws;
mod request_laws;
mod request_model;
mod request_wakes;
mod scenario_files;
mod shuttle_host;
mod worlds;
