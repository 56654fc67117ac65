package cli

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"coworker/netproxy/flow"
)

// egressReport is one line of the report's egress list: equal flows of a session, summed.
type egressReport struct {
	Host       string       `json:"host"`
	Addr       string       `json:"addr"`
	Port       uint16       `json:"port"`
	Verdict    flow.Verdict `json:"verdict"`
	Rule       string       `json:"rule"`
	Reason     string       `json:"reason"`
	BytesIn    int64        `json:"bytes_in"`
	BytesOut   int64        `json:"bytes_out"`
	Inspected  bool         `json:"inspected"`
	Source     flow.Source  `json:"source"`
	Count      int          `json:"count"`
	ResolvedBy string       `json:"resolved_by,omitempty"`
	Credential string       `json:"credential,omitempty"`
	Broken     string       `json:"broken,omitempty"` // why an allowed connection ended early
}

func egressReports(records []flow.Record) []egressReport {
	out := make([]egressReport, 0, len(records))
	for _, r := range records {
		out = append(out, egressReport{
			Host: r.Host, Addr: r.Addr, Port: r.Port, Verdict: r.Verdict, Rule: r.Rule, Reason: r.Reason, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
			Inspected: r.Inspected, Source: r.Source, Count: r.Count, ResolvedBy: r.ResolvedBy, Credential: r.Credential, Broken: r.Broken,
		})
	}
	return out
}

// flowArgs is what a row says about a flow beside verdict, rule, reason and host.
func flowArgs(r flow.Record) map[string]any {
	args := map[string]any{
		"source": string(r.Source), "protocol": r.Protocol, "bytes_in": r.BytesIn, "bytes_out": r.BytesOut, "inspected": r.Inspected,
		"begun": r.Begun.UTC().Format(time.RFC3339Nano), "duration_ms": r.Duration.Milliseconds(), "count": r.Count,
	}
	for name, value := range map[string]string{
		"addr": r.Addr, "needed": r.Needed, "resolved_by": r.ResolvedBy, "method": r.Method, "path": r.Path, "used_secret": r.Credential, "broken": r.Broken,
	} {
		if value != "" {
			args[name] = value
		}
	}
	if r.Status != 0 {
		args["status"] = r.Status
	}
	return args
}

// hostPort is how a destination is shown.
func hostPort(host string, port uint16) string {
	if port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// byteCount is a number of bytes for people.
func byteCount(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, 0
	for value >= unit && prefix < 4 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[prefix])
}
