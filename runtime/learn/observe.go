package learn

import (
	"path"
	"strconv"
	"strings"

	"coworker/enforce"
	"coworker/enforce/hide"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

// host takes one record of the proxy.
func (d *draft) host(r flow.Record) {
	times := int64(max(r.Count, 1))
	if r.Verdict == flow.Allow {
		if r.Source == flow.DNS {
			return // the connection that follows says the port
		}
		d.hostRule(d.allow.active, exactRule(r), times, "", string(r.Source))
		return
	}
	switch {
	case r.Needed == "":
		d.hopeless(strings.TrimSuffix(r.Host+" "+portText(r.Port), " ")+": "+r.Reason, times, "", string(r.Source))
	case strings.Contains(r.Needed, " "): // a method and a path, see flow.Remedy
		if !d.mayShow(r.Needed) {
			d.leftOut++
			return
		}
		d.note(d.settings, r.Needed, times, "", string(r.Source))
	default:
		d.hostRule(d.allow.refused, r.Needed, times, "", string(r.Source))
	}
}

func portText(port uint16) string {
	if port == 0 {
		return ""
	}
	return "port " + strconv.Itoa(int(port))
}

// exactRule is the rule about this one host and port, with the network and the rawness of the rule that let it through. It is
// empty if there is none.
func exactRule(r flow.Record) string {
	h, err := hostmatch.ParseHost(r.Host)
	if err != nil || r.Port == 0 {
		return ""
	}
	rule := h.Bracketed()
	if r.Port != defaultPort {
		rule += ":" + strconv.Itoa(int(r.Port))
	}
	if _, err := hostmatch.ParseAllow(r.Rule); err != nil {
		return rule // --net open, or nothing that is written down
	}
	if at := strings.IndexAny(r.Rule, "=+"); at >= 0 {
		rule += r.Rule[at:]
	}
	return rule
}

// defaultPort is that of a rule without one.
const defaultPort = 443

// hostRule notes a rule about one host: never a wildcard, and never one that cannot be read back.
func (d *draft) hostRule(table map[string]*seen, rule string, times int64, by, source string) {
	if rule == "" {
		return
	}
	if _, err := hostmatch.ParseAllow(rule); err != nil || strings.Contains(rule, "*") || !d.mayShow(rule) {
		d.leftOut++
		return
	}
	d.note(table, rule, times, by, source)
}

// dropNames drops questions to the resolver about hosts of which more is known: that somebody asked for the name says nothing
// about the port.
func (d *draft) dropNames() {
	for rule, s := range d.allow.refused {
		if len(s.sources) == 1 && s.sources[0] == string(flow.DNS) && (hasPort(d.allow.refused, rule) || hasPort(d.allow.active, rule)) {
			delete(d.allow.refused, rule)
		}
	}
}

func hasPort(table map[string]*seen, name string) bool {
	for rule, s := range table {
		if strings.HasPrefix(rule, name+":") && len(s.sources) > 0 {
			return true
		}
	}
	return false
}

// refusal takes one piece of news from the kernel.
func (d *draft) refusal(r Refused) {
	times, source := max(r.Count, 1), string(r.Source)
	by := r.Comm
	if !d.mayShow(by) {
		by = ""
	}
	flag, rest, _ := strings.Cut(r.Needed, " ")
	switch flag {
	case "-w":
		d.needsWrite += times
	case "--allow":
		d.hostRule(d.allow.refused, rest, times, by, source)
	case "--read":
		d.path(d.read.refused, rest, times, by, r.Refusal)
	case "--write":
		d.path(d.write.refused, rest, times, by, r.Refusal)
	case "--staged": // it was
	default:
		if r.Wall == enforce.FSHide || path.IsAbs(r.What) && secretFile(path.Clean(r.What)) {
			d.leftOut++
			return
		}
		d.hopeless(string(r.Wall)+": "+r.What, times, by, source)
	}
}

// path notes a path that was refused: the one that was asked for, if the flag is about that one.
func (d *draft) path(table map[string]*seen, word string, times int64, by string, r enforce.Refusal) {
	name := r.What
	exact := (word == name || word == "'"+name+"'") && !strings.Contains(name, "…") // with which names are cut
	if !exact || !path.IsAbs(name) || path.Clean(name) != name || name == "/" || secretFile(name) || !d.mayShow(name) {
		d.leftOut++
		return
	}
	d.note(table, name, times, by, string(r.Source))
}

// secretFile says whether a file's name, or that of a folder above it, marks it as a secret. A name that only the content
// decides about is one.
func secretFile(name string) bool {
	for at := name; at != "/" && at != "." && at != "~"; at = path.Dir(at) {
		if hide.ByName(at) != hide.Visible {
			return true
		}
	}
	return false
}

// hopeless notes what no flag would allow.
func (d *draft) hopeless(text string, times int64, by, source string) {
	if !d.mayShow(text) {
		d.leftOut++
		return
	}
	d.note(d.nothing, text, times, by, source)
}
