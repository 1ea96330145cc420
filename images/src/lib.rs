//! Muster: image repositories, layers, overlays.
