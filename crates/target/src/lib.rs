//! Portals, nodes and the pump.
