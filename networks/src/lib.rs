//! Muster: network definitions to per-node plans; no I/O.
