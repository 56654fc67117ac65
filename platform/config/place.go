package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

type place struct{ line, column int }

// placeOf maps the full name of each key to where it stands. The decoder forgets that once a value has the
// right type.
type placeOf map[string]place

// places indexes a document that was decoded without an error.
func places(data []byte) placeOf {
	at := placeOf{}
	var p unstable.Parser
	p.Reset(data)
	table := ""
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.KeyValue:
			at.add(&p, e, table)
		case unstable.Table, unstable.ArrayTable:
			table = at.add(&p, e, "")
		}
	}
	return at
}

// add enters one key and, for an inline table, the keys in it. The depth is that of the document, which the
// decoder went through before.
func (at placeOf) add(p *unstable.Parser, e *unstable.Node, table string) string {
	names := []string{table}
	if table == "" {
		names = nil
	}
	var first *unstable.Node
	for keys := e.Key(); keys.Next(); {
		if first == nil {
			first = keys.Node()
		}
		names = append(names, string(keys.Node().Data))
	}
	key := strings.Join(names, ".")
	start := p.Shape(first.Raw).Start
	at[key] = place{start.Line, start.Column}
	if e.Kind == unstable.KeyValue && e.Value().Kind == unstable.InlineTable {
		for inner := e.Value().Children(); inner.Next(); {
			at.add(p, inner.Node(), key)
		}
	}
	return key
}

// wrong makes the error for a key whose value is not acceptable.
func (at placeOf) wrong(file, key, reason string) *Error {
	where := at[key]
	for k := key; where.line == 0 && k != ""; {
		k = k[:max(strings.LastIndexByte(k, '.'), 0)]
		where = at[k]
	}
	return &Error{File: file, Line: where.line, Column: where.column, Key: key, Reason: key + ": " + reason}
}

// checkValues applies check to every value that the file sets.
func checkValues(file string, at placeOf, v reflect.Value, prefix string) error {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("toml")
		if name == "" || name == "-" {
			continue
		}
		field, key := v.Field(i), prefix+name
		var err error
		switch field.Kind() {
		case reflect.Struct:
			err = checkValues(file, at, field, key+".")
		case reflect.Slice:
			err = checkList(file, at, field, key)
		default:
			// Zero means "not set" to everyone who reads a Config, so a zero that somebody wrote is caught here.
			if _, written := at[key]; written || !field.IsZero() {
				err = checkOne(file, at, field, key)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkList(file string, at placeOf, list reflect.Value, key string) error {
	const most = 1000
	if list.Len() > most {
		return at.wrong(file, key, fmt.Sprintf("%d entries, at most %d", list.Len(), most))
	}
	for i := range list.Len() {
		if err := checkOne(file, at, list.Index(i), key); err != nil {
			return err
		}
	}
	return nil
}

func checkOne(file string, at placeOf, v reflect.Value, key string) error {
	c, ok := v.Interface().(checker)
	if !ok {
		return nil
	}
	if err := c.check(); err != nil {
		return at.wrong(file, key, err.Error())
	}
	return nil
}
