//! Finds and reads the configuration trees and lists image repositories.
