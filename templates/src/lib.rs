//! Muster: templates, cluster definitions and site configuration: parse, resolve, validate; no I/O.
