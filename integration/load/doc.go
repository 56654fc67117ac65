// Package load shows that one session's proxy stands many connections at once, and hostile ones, in bounded memory, from
// clients inside a real cell. It has tests only, so nothing imports it; network and client below it also serve
// integration/bench. How fast the proxy is, is measured there.
package load
