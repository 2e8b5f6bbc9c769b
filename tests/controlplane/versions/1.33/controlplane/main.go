// Kubernetes 1.33, whose kubelet takes no context: otherwise as main.go beside go.mod, one multi-call
// binary: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy and
// kubectl, linked once. The program is chosen by the name under which the binary is called (a
// symbolic link), or by the first argument.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"etcd":                    func() { etcd.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	},
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func main() {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		program, ok = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if !ok {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintln(os.Stderr, "call this binary as one of: "+strings.Join(names, ", "))
		os.Exit(2)
	}
	program()
}
