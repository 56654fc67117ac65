package cgroup

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, mounts, groups string
		want                 []hierarchy
	}{
		{"nothing", "", "", nil},
		{"v2", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", "0::/user.slice/user-1000.slice/session-1.scope\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/user.slice/user-1000.slice/session-1.scope", unified: true}}},
		{"v2 in a container with a namespace of its own", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/", unified: true}}},
		{"v2 in a container without one", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/abc/app\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/app", unified: true}}},
		{"v2 at the root of the container", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/abc\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/", unified: true}}},
		{"a name that only begins alike is another group", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/abcd\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/docker/abcd", unified: true}}},
		{"v1", "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"4:memory:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/c\n",
			[]hierarchy{
				{mount: "/sys/fs/cgroup/cpu,cpuacct", self: "/b", controllers: []string{"cpu", "cpuacct"}},
				{mount: "/sys/fs/cgroup/memory", self: "/a", controllers: []string{"memory"}},
			}},
		{"v1 that is joined under another name", "33 31 0:30 / /sys/fs/cgroup/cpuacct,cpu rw - cgroup cgroup rw,cpuacct,cpu\n", "2:cpu,cpuacct:/b\n",
			[]hierarchy{{mount: "/sys/fs/cgroup/cpuacct,cpu", self: "/b", controllers: []string{"cpu", "cpuacct"}}}},
		{"named v1", "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n", "9:name=systemd:/\n",
			[]hierarchy{{mount: "/sys/fs/cgroup/systemd", self: "/", controllers: []string{"name=systemd"}}}},
		{"hybrid", "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"8:pids:/\n0::/x\n",
			[]hierarchy{{mount: "/sys/fs/cgroup/pids", self: "/", controllers: []string{"pids"}}, {mount: "/sys/fs/cgroup/unified", self: "/x", unified: true}}},
		{"a mount without a group of this process", "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "0::/\n", nil},
		{"optional fields", "30 23 0:26 / /sys/fs/cgroup rw shared:9 master:2 - cgroup2 cgroup2 rw\n", "0::/\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/", unified: true}}},
		{"a group with a colon", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/a:b\n",
			[]hierarchy{{mount: "/sys/fs/cgroup", self: "/a:b", unified: true}}},
		{"broken lines", "x\n1 2 3\n30 23 0:26 / /sys/fs/cgroup rw cgroup2\n - cgroup2 cgroup2 rw\n", "x\n0:\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(tt.mounts, tt.groups); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/a\n")
	f.Add("39 31 0:36 / /p rw - cgroup cgroup rw,pids\n", "8:pids:/\n")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		for _, h := range parse(mounts, groups) {
			if h.mount == "" || !h.unified && len(h.controllers) == 0 {
				t.Fatalf("%+v", h)
			}
		}
	})
}
