// The control plane of the lab as one multi-call binary: etcd, kube-apiserver,
// kube-controller-manager, kube-proxy and kubectl, linked once. The program is
// chosen by the name under which the binary is called (a symbolic link), or by
// the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"

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
)

var programs = map[string]func(){
	"etcd":                    func() { etcd.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
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
		fmt.Fprintln(os.Stderr, "call this binary as etcd, kube-apiserver, kube-controller-manager, kube-proxy or kubectl")
		os.Exit(2)
	}
	program()
}
