package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/audit"
	"coworker/platform/redact"
)

func auditCommand(e *environment) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}
	return &cli.Command{
		Name:        "audit",
		Usage:       "read, verify and prove the record",
		Description: "Rows are never changed or deleted. A checkpoint kept elsewhere lets verify notice even a rewritten record.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list rows, newest first",
				Flags: []cli.Flag{
					asJSON, &cli.IntFlag{Name: "limit", Usage: "at most `N` rows", Value: 30},
					&cli.StringFlag{Name: "session", Usage: "rows of this session `ID`"}, &cli.StringFlag{Name: "stage", Usage: "rows of this `STAGE`: start, rules, exec, flow, ask, sweep, window, limit"},
					&cli.StringFlag{Name: "status", Usage: "rows with this `STATUS`: ok, refused, failed, held, …"},
					&cli.DurationFlag{Name: "since", Usage: "rows of the last `TIME` (2h)"}, &cli.BoolFlag{Name: "oldest", Usage: "oldest first"},
				},
				Description: "example: coworker audit list --status refused\nexit codes: 0; 125 the record cannot be read",
				Action:      noArgs(func(c *cli.Context) error { return auditList(c, e) }),
			},
			{
				Name: "show", Usage: "show one row with its attestation", ArgsUsage: "ROW", Flags: []cli.Flag{asJSON},
				Description: "example: coworker audit show 12\nexit codes: 0; 1 no such row",
				Action:      func(c *cli.Context) error { return auditShow(c, e) },
			},
			{
				Name: "verify", Usage: "recompute the record and compare it with what was signed", ArgsUsage: "[CHECKPOINT-FILE…]", Flags: []cli.Flag{asJSON},
				Description: "With checkpoints that were kept elsewhere it also notices a record that was rewritten as a whole.\nexample: coworker audit verify /mnt/usb/checkpoint\nexit codes: 0 it holds; 1 it was changed",
				Action:      func(c *cli.Context) error { return auditVerify(c, e) },
			},
			{
				Name: "prove", Usage: "print the proof of one row, or check one", ArgsUsage: "ROW",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "check", Usage: "check the proof in this `FILE` instead"},
					&cli.StringFlag{Name: "key", Usage: "public `KEY` of the record that it came from (default: this record's)"},
				},
				Description: "The proof is JSON that a stranger can check with the public key alone.\nexample: coworker audit prove 12 > proof.json; coworker audit prove --check proof.json --key KEY\nexit codes: 0; 1 no such row, or the proof does not hold",
				Action:      func(c *cli.Context) error { return auditProve(c, e) },
			},
			{
				Name: "checkpoint", Usage: "print a signed checkpoint, to keep where this account cannot reach", Flags: []cli.Flag{&cli.BoolFlag{Name: "key", Usage: "print the public key instead"}},
				Description: "example: coworker audit checkpoint > /mnt/usb/checkpoint\nexit codes: 0; 125 the record cannot be signed",
				Action:      noArgs(func(c *cli.Context) error { return auditCheckpoint(c, e) }),
			},
			{
				Name: "export", Usage: "print every row as a line of JSON, and the signed head",
				Description: "example: coworker audit export > audit.jsonl\nexit codes: 0; 125 the record cannot be read",
				Action: noArgs(func(c *cli.Context) error {
					return withLog(c.Context, e, func(log *audit.Log) error { return log.Export(c.Context, e.out) })
				}),
			},
		},
	}
}

// withLog opens the record for reading commands.
func withLog(ctx context.Context, e *environment, f func(*audit.Log) error) error {
	d, err := e.dirs()
	if err != nil {
		return err
	}
	rec, err := openLog(ctx, d, redact.New(), e.now)
	if err != nil {
		return err
	}
	return errors.Join(f(rec.log), rec.db.Close())
}

func auditList(c *cli.Context, e *environment) error {
	filter := audit.Filter{
		Session: c.String("session"), Stage: c.String("stage"), Status: c.String("status"), Oldest: c.Bool("oldest"), Limit: c.Int("limit"),
	}
	if filter.Limit < 1 {
		return &usageError{text: fmt.Sprintf("--limit %d: want at least 1", filter.Limit)}
	}
	if since := c.Duration("since"); since > 0 {
		filter.Since = e.now().Add(-since)
	}
	return withLog(c.Context, e, func(log *audit.Log) error {
		rows, err := log.List(c.Context, filter)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			list := []map[string]any{}
			for _, row := range rows {
				list = append(list, rowJSON(row))
			}
			return e.printJSON(list)
		}
		printRows(e.out, styleFor(e.out, e.getenv), rows)
		return nil
	})
}

// printRows writes rows for people, one a line.
func printRows(w io.Writer, s style, rows []audit.Row) {
	t := table{paint: func(row, column int, cell string) string {
		if row == 0 {
			return s.faint(cell)
		}
		if column == 3 && !strings.HasPrefix(cell, "ok") && !strings.HasPrefix(cell, "started") {
			return s.bad(cell)
		}
		return cell
	}}
	t.add("ROW", "TIME", "STAGE", "STATUS", "LEVEL", "WHAT")
	for _, row := range rows {
		t.add(strconv.FormatInt(row.Seq, 10), row.Time.Local().Format(time.DateTime), visible(row.Stage), visible(row.Status), visible(row.Level), clip(rowText(row), 100))
	}
	t.write(w)
}

// rowText is what a row is about, on one line.
func rowText(row audit.Row) string {
	var parts []string
	if row.Resource != "" {
		parts = append(parts, row.Resource)
	}
	var args []string
	if raw, ok := row.Args.(json.RawMessage); ok && json.Unmarshal(raw, &args) == nil {
		parts = append(parts, strings.Join(args, " "))
	}
	if row.Preview != "" {
		parts = append(parts, "→ "+row.Preview)
	}
	if row.Reason != "" {
		parts = append(parts, "("+row.Reason+")")
	}
	return visible(strings.Join(parts, " "))
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

func rowArgument(c *cli.Context) (int64, error) {
	args, err := exactArguments(c, 1)
	if err != nil {
		return 0, err
	}
	seq, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || seq < 1 {
		return 0, &usageError{text: fmt.Sprintf("%q is not the number of a row", args[0]), hint: "coworker audit list shows them"}
	}
	return seq, nil
}

func auditShow(c *cli.Context, e *environment) error {
	seq, err := rowArgument(c)
	if err != nil {
		return err
	}
	return withLog(c.Context, e, func(log *audit.Log) error {
		row, err := log.Get(c.Context, seq)
		if err != nil {
			return err
		}
		fields := rowJSON(row)
		if row.Attestation != "" {
			document, err := log.Attestation(c.Context, row.Attestation)
			if err != nil {
				return err
			}
			fields["attested"] = json.RawMessage(document)
		}
		if c.Bool("json") {
			return e.printJSON(fields)
		}
		printFields(e.out, row)
		return nil
	})
}

func printFields(w io.Writer, row audit.Row) {
	t := table{}
	add := func(name, value string) {
		if value != "" {
			t.add(name, visible(value))
		}
	}
	add("row", strconv.FormatInt(row.Seq, 10))
	add("time", row.Time.Local().Format(time.RFC3339))
	for _, f := range [][2]string{
		{"session", row.Session}, {"call", row.CallID}, {"actor", row.Actor}, {"workspace", row.Workspace}, {"tool", row.Tool},
		{"stage", row.Stage}, {"status", row.Status}, {"reason", row.Reason}, {"what", row.Resource}, {"result", row.Preview},
		{"action", row.ActionDigest}, {"digest", row.ResultDigest}, {"level", row.Level}, {"walls", strings.Join(row.Walls, " ")},
		{"proof", row.Attestation}, {"leaf", row.Leaf.String()},
	} {
		add(f[0], f[1])
	}
	if raw, ok := row.Args.(json.RawMessage); ok {
		add("arguments", string(raw))
	}
	t.write(w)
	if row.Attestation != "" {
		fmt.Fprintln(w, "\n--json prints the whole attestation")
	}
}

func auditVerify(c *cli.Context, e *environment) error {
	var external []audit.Checkpoint
	for _, file := range c.Args().Slice() {
		data, err := readSmall(file)
		if err != nil {
			return &usageError{text: fmt.Sprintf("checkpoint %q: %v", file, err)}
		}
		checkpoint, err := audit.ParseCheckpoint(string(data))
		if err != nil {
			return &usageError{text: fmt.Sprintf("%q: %v", file, err), hint: "it must be what coworker audit checkpoint printed, unchanged"}
		}
		external = append(external, checkpoint)
	}
	return withLog(c.Context, e, func(log *audit.Log) error {
		done := e.progress("verifying")
		verified, err := log.Verify(c.Context, external...)
		done()
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return e.printJSON(map[string]any{"rows": verified.Rows, "root": verified.Root.String(), "checkpoints": verified.Checkpoints})
		}
		_, err = fmt.Fprintf(e.out, "%d rows hold, checked against %d checkpoints; root %s\n", verified.Rows, verified.Checkpoints, verified.Root)
		return resultError(err)
	})
}

// readSmall reads a file of a few lines; a longer one is not what was asked for.
func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const most = 4 << 20 // a proof carries one row
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}

func auditProve(c *cli.Context, e *environment) error {
	if file := c.String("check"); file != "" {
		if err := noArguments(c); err != nil {
			return err
		}
		return checkProof(c, e, file)
	}
	seq, err := rowArgument(c)
	if err != nil {
		return err
	}
	return withLog(c.Context, e, func(log *audit.Log) error {
		proof, err := log.Prove(c.Context, seq)
		if err != nil {
			return err
		}
		return e.printJSON(proof)
	})
}

// checkProof needs no record if the key is given: that is the stranger's case.
func checkProof(c *cli.Context, e *environment, file string) error {
	data, err := readSmall(file)
	if err != nil {
		return &usageError{text: fmt.Sprintf("proof %q: %v", file, err)}
	}
	proof, err := audit.ParseProof(data)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", audit.ErrProof, file, err)
	}
	key := c.String("key")
	if key == "" {
		err = withLog(c.Context, e, func(log *audit.Log) error {
			key = audit.FormatPublicKey(log.PublicKey())
			return nil
		})
		if err != nil {
			return err
		}
	}
	public, err := audit.ParsePublicKey(key)
	if err != nil {
		return &usageError{text: "--key: " + err.Error(), hint: "coworker audit checkpoint --key prints it on the machine that keeps the record"}
	}
	row, checkpoint, err := audit.VerifyProof(proof, public)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "row %d of %s is proved by the checkpoint of %d rows, %s\n  %s %s %s\n", row.Seq, row.Time.UTC().Format(time.RFC3339), checkpoint.Size,
		checkpoint.Time.UTC().Format(time.RFC3339), visible(row.Stage), visible(row.Status), clip(rowText(row), 200))
	return resultError(err)
}

func auditCheckpoint(c *cli.Context, e *environment) error {
	return withLog(c.Context, e, func(log *audit.Log) error {
		if c.Bool("key") {
			_, err := fmt.Fprintln(e.out, audit.FormatPublicKey(log.PublicKey()))
			return resultError(err)
		}
		checkpoint, err := log.Checkpoint(c.Context)
		if err != nil {
			return err
		}
		_, err = io.WriteString(e.out, checkpoint.String())
		return resultError(err)
	})
}
