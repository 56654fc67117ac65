package session

import (
	"reflect"
	"slices"
	"testing"

	"coworker/enforce"
	"coworker/runtime/ward"
	"coworker/runtime/wire"
)

func TestMergeLimits(t *testing.T) {
	on := func(name string, m enforce.Mechanism) enforce.Limit {
		return enforce.Limit{Name: name, Value: 1, Active: true, Mechanism: m}
	}
	off := func(name, why string) enforce.Limit { return enforce.Limit{Name: name, Value: 1, Detail: why} }
	named := func(l enforce.Limit) enforce.Limit { l.Named = true; return l }
	for _, tt := range []struct {
		name  string
		named []string
		lists [][]enforce.Limit
		want  []enforce.Limit
	}{
		{"nothing", nil, nil, []enforce.Limit{}},
		{"one list", nil, [][]enforce.Limit{{on("a", enforce.Rlimit)}}, []enforce.Limit{on("a", enforce.Rlimit)}},
		{"active wins over missing", nil, [][]enforce.Limit{{off("a", "no")}, {on("a", enforce.Cgroup)}}, []enforce.Limit{on("a", enforce.Cgroup)}},
		{"missing does not win over active", nil, [][]enforce.Limit{{on("a", enforce.Rlimit)}, {off("a", "no")}}, []enforce.Limit{on("a", enforce.Rlimit)}},
		{"the first of two active stays", nil, [][]enforce.Limit{{on("a", enforce.Rlimit)}, {on("a", enforce.Cgroup)}}, []enforce.Limit{on("a", enforce.Rlimit)}},
		{"named and in force", []string{"a"}, [][]enforce.Limit{{on("a", enforce.Rlimit)}}, []enforce.Limit{named(on("a", enforce.Rlimit))}},
		{"named and missing", []string{"a"}, [][]enforce.Limit{{off("a", "no")}}, []enforce.Limit{named(off("a", "no"))}},
		{"named and unknown", []string{"a"}, nil, []enforce.Limit{{Name: "a", Named: true, Detail: "no mechanism for it in this backend"}}},
		{"order of first sight", nil, [][]enforce.Limit{{on("b", enforce.Rlimit), on("a", enforce.Rlimit)}, {on("c", enforce.Cgroup)}},
			[]enforce.Limit{on("b", enforce.Rlimit), on("a", enforce.Rlimit), on("c", enforce.Cgroup)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := mergeLimits(enforce.Limits{Named: tt.named}, tt.lists...); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestMechanismsOf(t *testing.T) {
	none := ward.State{}
	inet := ward.State{Egress: ward.Programs{Hooks: []string{"connect4"}}}
	unix := ward.State{Egress: ward.Programs{Hooks: []string{"connect4", "connect_unix", "sendmsg_unix"}}}
	for _, tt := range []struct {
		name    string
		backend enforce.BackendName
		abi     int
		limits  []enforce.Limit
		wall    enforce.Wall
		want    []enforce.Mechanism
		ward    ward.State
	}{
		{"native reads", enforce.Native, 6, nil, enforce.FSRead, []enforce.Mechanism{enforce.MountNS, enforce.Landlock}, none},
		{"native reads without Landlock", enforce.Native, 0, nil, enforce.FSRead, []enforce.Mechanism{enforce.MountNS}, none},
		{"native processes before scopes", enforce.Native, 5, nil, enforce.Proc, []enforce.Mechanism{enforce.PidNS, enforce.Seccomp}, none},
		{"native processes", enforce.Native, 6, nil, enforce.Proc, []enforce.Mechanism{enforce.PidNS, enforce.LandlockScope, enforce.Seccomp}, none},
		{"bare egress before TCP rights", enforce.Bare, 3, nil, enforce.NetEgress, []enforce.Mechanism{enforce.Seccomp}, none},
		{"bare egress", enforce.Bare, 4, nil, enforce.NetEgress, []enforce.Mechanism{enforce.LandlockTCP, enforce.Seccomp}, none},
		{"bare cannot promise life", enforce.Bare, 6, []enforce.Limit{{Name: "a", Active: true, Mechanism: enforce.Cgroup}}, enforce.Life, nil, none},
		{"bare hides nothing", enforce.Bare, 6, nil, enforce.FSHide, nil, none},
		{"limits count once and only if they hold", enforce.Native, 6, []enforce.Limit{
			{Name: "a", Active: true, Mechanism: enforce.Cgroup}, {Name: "b", Active: true, Mechanism: enforce.Cgroup}, {Name: "c", Mechanism: enforce.Rlimit},
		}, enforce.Res, []enforce.Mechanism{enforce.Cgroup}, none},
		{"a group keeps life too", enforce.Native, 6, []enforce.Limit{{Name: "a", Active: true, Mechanism: enforce.Cgroup}},
			enforce.Life, []enforce.Mechanism{enforce.PidNS, enforce.Pdeathsig, enforce.Cgroup}, none},
		{"native egress with programs", enforce.Native, 6, nil, enforce.NetEgress, []enforce.Mechanism{enforce.NetNS, enforce.EBPF}, unix},
		{"native local sockets with programs", enforce.Native, 6, nil, enforce.NetLocal,
			[]enforce.Mechanism{enforce.NetNS, enforce.MountNS, enforce.EBPF, enforce.LandlockScope, enforce.Seccomp}, unix},
		{"native local sockets on a kernel without those hooks", enforce.Native, 5, nil, enforce.NetLocal,
			[]enforce.Mechanism{enforce.NetNS, enforce.MountNS, enforce.Seccomp}, inet},
		{"bare egress with programs", enforce.Bare, 4, nil, enforce.NetEgress, []enforce.Mechanism{enforce.EBPF, enforce.LandlockTCP, enforce.Seccomp}, inet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := mechanismsOf(tt.backend, &wire.Proved{LandlockABI: tt.abi}, tt.limits, tt.ward)[tt.wall]
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.wall, got, tt.want)
			}
		})
	}
}
