package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxLine bounds one row.
const maxLine = 1 << 20

// Row is one case. Fields that only people read are left out.
type Row struct {
	ID      string   `json:"id"`
	Kind    string   `json:"kind"`
	Allow   []string `json:"allow"`
	Deny    []string `json:"deny"`
	Request string   `json:"request"`
}

// Result is the answer to one row. Host and Port are what was decided on; they are empty if the request was refused
// before it named them.
type Result struct {
	ID       string `json:"id"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
}

// Run reads one row a line and writes one result a line, in order. A line that is no row ends the run.
func Run(r io.Reader, w io.Writer) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var row Row
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			return fmt.Errorf("row in line %d: %w", n, err)
		}
		if row.Kind != "" && row.Kind != "url" {
			return fmt.Errorf("row %s in line %d is of kind %q, not url", row.ID, n, row.Kind)
		}
		if err := enc.Encode(Decide(row)); err != nil {
			return fmt.Errorf("write result of row %s: %w", row.ID, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return out.Flush()
}
