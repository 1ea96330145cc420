//! The node daemon of Muster and its shim.
