"""tmp"""

JaxOptimizer = NativeRule = NeutralRule = network_gradients = None
