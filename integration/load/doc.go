// Package load shows that one session's proxy stands many connections at once, and hostile ones, in bounded memory, from
// clients inside a real cell. It has tests only. How fast the proxy is, is measured in integration/bench.
package load
