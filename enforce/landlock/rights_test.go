package landlock

import (
	"errors"
	"slices"
	"testing"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
)

// TestRightsMatchLibrary compares the tables with the library's, ABI by ABI.
func TestRightsMatchLibrary(t *testing.T) {
	configs := []golandlock.Config{golandlock.V1, golandlock.V2, golandlock.V3, golandlock.V4, golandlock.V5,
		golandlock.V6, golandlock.V7, golandlock.V8, golandlock.V9, golandlock.V10, golandlock.V11}
	if len(configs) != newestABI {
		t.Fatalf("%d ABIs, want %d", len(configs), newestABI)
	}
	for i, config := range configs {
		abi := i + 1
		fs, names := upTo(fsRights, abi)
		net, _ := upTo(netRights, abi)
		scope, _ := upTo(scopes, abi)
		if fs != uint64(config.HandledAccessFS) || net != uint64(config.HandledAccessNet) || scope != uint64(config.Scoped) {
			t.Errorf("ABI %d: fs %#x net %#x scopes %#x, library %v", abi, fs, net, scope, config)
		}
		if has := slices.Contains(names, "refer"); has != (abi >= 2) {
			t.Errorf("ABI %d: refer is %v", abi, has)
		}
	}
}

func TestNoRuleGrantsDeviceNodes(t *testing.T) {
	for name, rights := range map[string]uint64{"read": readRights, "write": writeRights, "devices": deviceRights} {
		if rights&(makeChar|makeBlock) != 0 {
			t.Errorf("%s rules grant making devices", name)
		}
	}
	if (readRights|writeRights)&ioctlDev != 0 {
		t.Error("ioctl is granted outside of the device list")
	}
	if readRights&(writeFile|truncate|removeDir|removeFile|makeReg|makeDir|refer) != 0 {
		t.Error("read rules grant writing")
	}
}

func TestCheckRefuses(t *testing.T) {
	rows := map[string]Rules{
		"relative":     {ReadOnly: Paths("etc")},
		"empty":        {ReadWrite: Paths("")},
		"port":         {ConnectTCP: []uint16{80}},
		"bind":         {BindTCP: []uint16{80}},
		"relative dev": {Devices: []Path{{Name: "dev/null", Optional: true}}},
	}
	for name, rules := range rows {
		if err := rules.check(); !errors.Is(err, ErrRule) {
			t.Errorf("%s: %v, want ErrRule", name, err)
		}
	}
	if err := (&Rules{ReadOnly: Paths("/"), RestrictTCP: true, ConnectTCP: []uint16{1}}).check(); err != nil {
		t.Error(err)
	}
}
