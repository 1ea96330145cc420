//! Muster: machine to QEMU command line, QMP messages; no I/O.
