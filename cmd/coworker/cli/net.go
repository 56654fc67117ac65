package cli

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/audit"
)

func netCommand(e *environment) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}
	return &cli.Command{
		Name:        "net",
		Usage:       "show what sessions reached and were refused",
		Description: "Every connection that a session's proxy saw is a row of the record, allowed or refused, with bytes and duration.",
		Subcommands: []*cli.Command{
			{
				Name: "log", Usage: "list connections, newest first",
				Flags: []cli.Flag{
					asJSON, &cli.IntFlag{Name: "limit", Usage: "at most `N` rows", Value: 30},
					&cli.StringFlag{Name: "session", Usage: "of this session `ID`"}, &cli.BoolFlag{Name: "denied", Usage: "only what was refused"},
					&cli.DurationFlag{Name: "since", Usage: "of the last `TIME` (2h)"},
				},
				Description: "example: coworker net log --denied --since 1h\nexit codes: 0; 125 the record cannot be read",
				Action:      noArgs(func(c *cli.Context) error { return netLog(c, e) }),
			},
			{
				Name: "top", Usage: "sum connections by host, most bytes first",
				Flags: []cli.Flag{
					asJSON, &cli.IntFlag{Name: "limit", Usage: "at most `N` hosts", Value: 20},
					&cli.StringFlag{Name: "session", Usage: "of this session `ID`"}, &cli.DurationFlag{Name: "since", Usage: "of the last `TIME`", Value: 24 * time.Hour},
				},
				Description: "example: coworker net top --since 168h\nexit codes: 0; 125 the record cannot be read",
				Action:      noArgs(func(c *cli.Context) error { return netTop(c, e) }),
			},
		},
	}
}

// flowRow is a row of the record about one connection.
type flowRow struct {
	Row       int64     `json:"row"`
	Time      time.Time `json:"time"`
	Session   string    `json:"session"`
	Host      string    `json:"host"` // with the port
	Verdict   string    `json:"verdict"`
	Rule      string    `json:"rule,omitempty"`
	Reason    string    `json:"reason"`
	Level     string    `json:"level"`
	Source    string    `json:"source"`
	Protocol  string    `json:"protocol"`
	Addr      string    `json:"addr,omitempty"`
	Needed    string    `json:"needed,omitempty"`
	Method    string    `json:"method,omitempty"`
	Path      string    `json:"path,omitempty"`
	Status    int       `json:"status,omitempty"`
	Used      string    `json:"used_secret,omitempty"`
	Broken    string    `json:"broken,omitempty"`
	BytesIn   int64     `json:"bytes_in"`
	BytesOut  int64     `json:"bytes_out"`
	Millis    int64     `json:"duration_ms"`
	Count     int64     `json:"count"`
	Inspected bool      `json:"inspected"`
}

func flowOf(row audit.Row) flowRow {
	out := flowRow{}
	if raw, ok := row.Args.(json.RawMessage); ok {
		if err := json.Unmarshal(raw, &out); err != nil {
			out = flowRow{Broken: "the row's details cannot be read: " + err.Error()}
		}
	}
	out.Row, out.Time, out.Session, out.Host, out.Verdict = row.Seq, row.Time.UTC(), row.Session, row.Resource, row.Status
	out.Rule, out.Reason, out.Level, out.Count = row.Rule, row.Reason, row.Level, max(out.Count, 1)
	return out
}

// page is how many rows are read at once.
const page = 5000

// flows gives rows about connections, newest first, to each, until limit of them were given.
func flows(c *cli.Context, e *environment, limit int, each func(flowRow)) error {
	if limit < 1 {
		return &usageError{text: "--limit: want at least 1"}
	}
	filter := audit.Filter{Session: c.String("session"), Stage: "flow"}
	if c.Bool("denied") {
		filter.Status = "deny"
	}
	if since := c.Duration("since"); since > 0 {
		filter.Since = e.now().Add(-since)
	}
	return withLog(c.Context, e, func(log *audit.Log) error {
		for limit > 0 {
			filter.Limit = min(limit, page)
			rows, err := log.List(c.Context, filter)
			if err != nil || len(rows) == 0 {
				return err
			}
			for _, row := range rows {
				each(flowOf(row))
			}
			limit, filter.Before = limit-len(rows), rows[len(rows)-1].Seq
		}
		return nil
	})
}

func netLog(c *cli.Context, e *environment) error {
	rows := []flowRow{}
	if err := flows(c, e, c.Int("limit"), func(r flowRow) { rows = append(rows, r) }); err != nil {
		return err
	}
	if c.Bool("json") {
		return e.printJSON(rows)
	}
	s := styleFor(e.out, e.getenv)
	t := table{paint: func(row, column int, cell string) string {
		switch {
		case row == 0:
			return s.faint(cell)
		case column == 2 && cell != "allow":
			return s.bad(cell)
		}
		return cell
	}}
	t.add("ROW", "TIME", "VERDICT", "HOST", "IN", "OUT", "VIA", "WHY")
	for _, r := range rows {
		t.add(strconv.FormatInt(r.Row, 10), r.Time.Local().Format(time.DateTime), visible(r.Verdict), clip(visible(r.Host), 48),
			byteCount(r.BytesIn), byteCount(r.BytesOut), visible(r.Source), clip(visible(why(r)), 80))
	}
	t.write(e.out)
	return nil
}

func why(r flowRow) string {
	text := r.Reason
	if r.Method != "" {
		text = r.Method + " " + r.Path + ": " + text
	}
	if r.Count > 1 {
		text += ", " + strconv.FormatInt(r.Count, 10) + " times"
	}
	if r.Broken != "" {
		text += "; ended early: " + r.Broken
	}
	return text
}

// hostSum is what one host got and gave.
type hostSum struct {
	Host     string `json:"host"`
	Allowed  int64  `json:"allowed"`
	Refused  int64  `json:"refused"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

func netTop(c *cli.Context, e *environment) error {
	limit := c.Int("limit")
	if limit < 1 {
		return &usageError{text: "--limit: want at least 1"}
	}
	hosts := hostSums{}
	if err := flows(c, e, math.MaxInt, hosts.add); err != nil {
		return err
	}
	sums := hosts.list()
	sums = sums[:min(limit, len(sums))]
	if c.Bool("json") {
		return e.printJSON(sums)
	}
	s := styleFor(e.out, e.getenv)
	t := table{paint: func(row, _ int, cell string) string {
		if row == 0 {
			return s.faint(cell)
		}
		return cell
	}}
	t.add("HOST", "IN", "OUT", "ALLOWED", "REFUSED")
	for _, h := range sums {
		t.add(clip(visible(h.Host), 60), byteCount(h.BytesIn), byteCount(h.BytesOut), strconv.FormatInt(h.Allowed, 10), strconv.FormatInt(h.Refused, 10))
	}
	t.write(e.out)
	return nil
}

// hostSums adds rows up by host.
type hostSums map[string]*hostSum

func (s hostSums) add(r flowRow) {
	h := s[r.Host]
	if h == nil {
		h = &hostSum{Host: r.Host}
		s[r.Host] = h
	}
	h.BytesIn, h.BytesOut = h.BytesIn+r.BytesIn, h.BytesOut+r.BytesOut
	if r.Verdict == "allow" {
		h.Allowed += r.Count
	} else {
		h.Refused += r.Count
	}
}

// list is most bytes first, then most refusals.
func (s hostSums) list() []hostSum {
	out := make([]hostSum, 0, len(s))
	for _, h := range s {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b hostSum) int {
		return cmp.Or(cmp.Compare(b.BytesIn+b.BytesOut, a.BytesIn+a.BytesOut), cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Host, b.Host))
	})
	return out
}
