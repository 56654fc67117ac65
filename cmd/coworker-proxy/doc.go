// Command coworker-proxy is the proxy process of one session: the only way out of a cell. The supervisor starts it with a
// control line and listeners as descriptors; it does nothing when started by hand.
package main
